// Asks by OpenAI's client for Node; prints the answers as JSON. Arguments: BASE_URL MODEL ASKED, where ASKED is JSON.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [baseURL, model, asked] = process.argv.slice(2);
const { say, messages, tool } = JSON.parse(asked);
const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0 });
const fields = { model, messages, seed: 1, max_tokens: 200 };
const spoken = { ...fields, messages: [{ role: "user", content: say }], max_tokens: 30 };
const called = { ...fields, tools: [tool], tool_choice: "required", parallel_tool_calls: false };
const Weather = z.object({ city: z.enum(["Oslo", "Rome"]), celsius: z.number().int().min(-50).max(50) });

const whole = await client.chat.completions.create(spoken);
const stream = client.chat.completions.stream(spoken);
const calls = await client.chat.completions.create(called);
const callStream = client.chat.completions.stream(called);
const object = await client.chat.completions.create({
  ...fields,
  temperature: 0,
  response_format: { type: "json_object" },
});
const parsed = await client.chat.completions.parse({ ...fields, response_format: zodResponseFormat(Weather, "weather") });
const response = await client.responses.create({ model, input: say, max_output_tokens: 30 });

console.log(
  JSON.stringify({
    chat: whole.choices[0].message.content,
    chat_streamed: (await stream.finalChatCompletion()).choices[0].message.content,
    call: calls.choices[0].message.tool_calls[0].function,
    call_streamed: (await callStream.finalChatCompletion()).choices[0].message.tool_calls[0].function,
    object: JSON.parse(object.choices[0].message.content),
    parsed: parsed.choices[0].message.parsed,
    response: response.output_text,
  }),
);
