// Initial texts of the form.

export const MESSAGES = `My package has not been delivered yet.
The order was shipped on Monday and will arrive in three days.
I was charged twice for the same invoice.
How can I get my money back?
The app closes as soon as I open it.
I forgot my password and cannot log in.
The battery of the phone is empty after two hours.
Please cancel my subscription at the end of the month.
The shoes are too small; I want to exchange them.
The screen was broken when I opened the box.
Is there a discount for students?
The driver left the parcel with a neighbor.
Your support team was friendly and quick.
The website does not accept my credit card.
The jacket is warm and fits well.
Can I change the address of my order?`;
