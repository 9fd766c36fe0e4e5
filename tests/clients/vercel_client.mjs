// Asks by Vercel's AI SDK; prints the answers as JSON. Arguments: BASE_URL MODEL ASKED AGENTS_URL AGENTS_MODEL, where
// ASKED is JSON and the last two are of a service whose target calls tools by itself.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, Output, streamText, tool } from "ai";

const [baseURL, model, asked, agentsURL, agentsModel] = process.argv.slice(2);
const { say, messages, tool: offered, schema, report } = JSON.parse(asked);
const provider = (url) => createOpenAICompatible({ name: "taskspec", baseURL: url, supportsStructuredOutputs: true });
const target = provider(baseURL)(model);
const fields = { model: target, messages, seed: 1, maxOutputTokens: 200, maxRetries: 0 };
const spoken = { ...fields, messages: [{ role: "user", content: say }], maxOutputTokens: 30 };
const { description, parameters } = offered.function;
const weather = tool({ description, inputSchema: jsonSchema(parameters) });
const cities = [];
const execute = ({ city }) => {
  cities.push(city);
  return report;
};

const whole = await generateText(spoken);
const streamed = streamText(spoken);
const called = await generateText({ ...fields, tools: { weather }, toolChoice: { type: "tool", toolName: "weather" } });
const object = await generateText({ ...fields, temperature: 0, output: Output.json() });
const parsed = await generateText({ ...fields, output: Output.object({ schema: jsonSchema(schema) }) });
const parsedStream = streamText({ ...fields, output: Output.object({ schema: jsonSchema(schema) }) });
const agent = await generateText({
  model: provider(agentsURL)(agentsModel),
  messages,
  tools: { weather: tool({ description, inputSchema: jsonSchema(parameters), execute }) },
  stopWhen: isStepCount(3),
});

console.log(
  JSON.stringify({
    chat: whole.text,
    chat_streamed: await streamed.text,
    call: called.toolCalls[0].input,
    object: object.output,
    parsed: parsed.output,
    parsed_streamed: await parsedStream.output,
    agent: { cities, reasoning: agent.steps[0].reasoningText, text: agent.text },
  }),
);
