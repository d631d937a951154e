// Texts of the examples for classifiers.

/** A message that looks like advertising, one that does not, and one in between. */
export const OFFER = "WINNER! You have been chosen for a free holiday. Call 0900 123 456 now to claim your prize.";
export const CHAT = "Running ten minutes late, can you save me a seat next to you?";
export const BANK_NOTICE = "Your account statement is ready. Log in to see it, or call us for help.";

/** Messages with labels. */
export const MESSAGES_WITH_LABELS = `${OFFER}\tspam
${CHAT}\tham
Free entry in our weekly draw! Text WIN to 80086. Costs 1.50 per message.\tspam
Did you remember to buy milk on the way home?\tham
Congratulations, your mobile number has won 2000 pounds. Reply YES to collect.\tspam
The meeting is moved to three, same room as last week.\tham
Last chance! Cheap loans without any checks, call now.\tspam
I will call you when the train gets in.\tham
You have 1 new voicemail. Dial 09001112 to listen, 150p per minute.\tspam
Happy birthday! Hope you have a lovely day with the family.\tham
Claim your ringtone today, text TONE to 4455.\tspam
Can you send me the recipe you told me about?\tham`;
