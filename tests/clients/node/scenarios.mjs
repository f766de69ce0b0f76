// One scenario of `openai` for Node: `node scenarios.mjs NAME BASE_URL MODEL` prints JSON in a line,
// and then stays until its input ends, so that it is the client and not its end that closes things.
// Lies beside the installed package when it runs, which is how Node finds it.

import OpenAI from "openai";

const [name, baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "EMPTY", maxRetries: 0 });
const question = {
  model,
  messages: [{ role: "user", content: "What is the capital of France?" }],
  max_tokens: 32,
  temperature: 0,
};
const endless = { ...question, max_tokens: 4000, ignore_eos: true };

const raisedBy = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return error.constructor.name;
  }
  return null;
};

const scenarios = {
  chat: async () => client.chat.completions.create(question),

  stream: async () => {
    const chunks = [];
    const stream = await client.chat.completions.create({
      ...question,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
  },

  helper: async () => {
    const runner = client.chat.completions.stream(question);
    const contents = [];
    runner.on("content", (delta) => contents.push(delta));
    return { final: await runner.finalChatCompletion(), contents };
  },

  abort: async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const raised = raisedBy(client.chat.completions.create(endless, { signal }));
    // Somebody who sees the server at work says when.
    await new Promise((resolve) => process.stdin.once("data", resolve));
    controller.abort();
    return raised;
  },

  abortStream: async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const stream = await client.chat.completions.create({ ...endless, stream: true }, { signal });
    let count = 0;
    for await (const chunk of stream) {
      count += 1;
      if (count === 5) controller.abort();
    }
    // What had come with the fifth is still given out.
    return { enough: count >= 5, aborted: signal.aborted };
  },

  breakOff: async () => {
    const stream = await client.chat.completions.create({ ...endless, stream: true });
    let count = 0;
    for await (const chunk of stream) {
      count += 1;
      if (count === 5) break;
    }
    return { enough: count === 5, aborted: false };
  },

  refused: async () => raisedBy(client.chat.completions.create({ ...question, temperature: -1 })),
};

console.log(JSON.stringify(await scenarios[name]()));
for await (const _ of process.stdin);
console.log('"stayed until the end"');
