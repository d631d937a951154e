// Example prompts from the lectures, and a caveat about generated text.

export const PROMPTS: Readonly<Record<string, string>> = {
  "A story": "This is a story about me and my brothers",
  "The first law of robotics": "Recite the first law of robotics",
  "Questions and answers":
    "Q: What is your favorite animal?\n\nA: My favorite animal is a dog.\n\nQ: Why?\n\n" +
    "A: Because dogs are loyal and friendly.\n\nQ: How many eyes does a giraffe have?\n\nA:",
  "Animals with three legs": "Q: How many legs does a frog have?\n\nA: A frog has four legs.\n\nQ: Are there any animals with three legs?\n\nA:",
  "An essay for a newspaper":
    "Please write a short op-ed around 500 words. Keep the language simple and concise. Focus on why humans have nothing to fear from AI.",
  "The essay, begun": "I am not a human. I am a robot. A thinking robot. I use only 0.12% of my cognitive capacity.",
  "A cloud below the window":
    "Input: Jennifer looked out her window and sees a really cool cloud below her. She unbuckles her seatbelt and " +
    "heads to the bathroom. Is Jennifer probably traveling more than 300 miles per hour relative to the earth?\n\nModel Output:",
};

export const CAVEAT =
  "Read with care. A language model writes what is likely after your prompt, judged by the texts it was trained on; " +
  "nothing in it checks whether that is true, fair or meant. Critics call such models stochastic parrots: they put " +
  "forms together by chance and frequency, without regard to what the forms mean. And as in Searle's Chinese room, " +
  "answers that look right do not show that anything behind them understands; what would show it is disputed.";
