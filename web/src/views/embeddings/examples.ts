// Initial texts of the forms.
import reviews from "../../../../src/regard/lessons/reviews.tsv?raw";

export const TRAIN = `He took a train.
He likes to train in the mornings.
The train to the city was late.
She missed the last train home.
They train for the race every day.
We train young players in the summer.
The train stopped at the old station.
You have to train hard to win.`;

export const BANK = `He took the money to the bank.
The bank closes at four on Fridays.
She works for a large bank in the city.
The bank gave them a loan for the house.
We sat on the bank of the river.
The boat reached the other bank.
Trees grow along the bank of the stream.
The river rose over its bank.`;

export const PLAY = `The children play in the garden.
They play football after school.
She learned to play the piano.
He will play the violin tonight.
The play was written in 1601.
We saw a play at the old theater.
Her first play had three acts.
The actors rehearsed the play for a month.`;

export const LIGHT = `The light of the sun was bright.
Turn on the light in the kitchen.
There was no light in the tunnel.
The bag is light and easy to carry.
She wore a light coat.
They had a light lunch.
He stopped to light a fire.
Please light the candles.`;

export const ANIMALS_AND_TOOLS = `The dog barked at the stranger. | animal
A cat slept on the chair. | animal
The horse ran across the field. | animal
Two birds sat in the tree. | animal
The farmer fed the sheep. | animal
The hammer lay on the bench. | tool
He cut the wood with a saw. | tool
The knife was very sharp. | tool
She fixed it with a screwdriver. | tool
They dug the hole with a shovel. | tool`;

export const QUESTIONS = `Where is the station? | question
How old is your brother? | question
When does the shop open? | question
Who wrote this book? | question
Why are you late? | question
The station is near the river. | statement
My brother is nine years old. | statement
The shop opens at ten. | statement
A friend of mine wrote this book. | statement
I missed the bus this morning. | statement`;

export const TOPICS = `The soup needs more salt. | food
She baked bread in the old oven. | food
We ate rice and fish for dinner. | food
The cake was sweet and soft. | food
He cooked the meat over the fire. | food
Fresh fruit is sold in the market. | food
The band played until midnight. | music
She sings in a choir on Sundays. | music
He learned to play the piano. | music
The song was written for a film. | music
The orchestra gave a concert in the park. | music
Their first album sold many copies. | music
The team won the final game. | sport
He scored two goals in the match. | sport
She ran the race in record time. | sport
The players trained every morning. | sport
The coach left the club in May. | sport
They lost the cup in the last minute. | sport`;

/** Short reviews of our own, as the course uses them: a text and its label per line. */
export const REVIEWS = reviews.trim().replaceAll("\t", " | ");
