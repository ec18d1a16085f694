// Package lettasim simulates a Letta server over real HTTP, for tests, benchmarks, the demo and
// `rollout simulate`.
//
// It simulates what a client of the servers 0.16.7 and 0.16.8 can observe about agents, sends,
// runs, steps, messages and provider traces. This includes paths and their slashes, bodies, error
// formats, headers, and the times at which objects disappear. `make e2e-letta` compares each route
// with the real servers, and lists the behavior that it does not compare (package live/cases).
// lettasim contains no model and does not execute tools.
//
// # Two kinds of agents
//
// A replayed agent replays a [Case], the recorded life of one agent. Its n-th send gets the n-th
// recorded answer byte for byte, and its runs, steps, messages and traces are as recorded. Only the
// ids of objects on the server are replaced, so that a case can be sampled many times. Ids in
// turns, and in text that the model saw, are not replaced. With [Config.KeepIDs], no ids are
// replaced. With [Config.InputIDs], assistant turns and provider traces (request_json.input_ids)
// also contain the recorded prompt ids, as on a newer server.
//
// A scripted agent returns generated answers. These answers depend only on the seed, the task id,
// the sample index and the messages. They do not depend on the attempt number, or on the order and
// concurrency of requests. [Model] contains the tokenizer and the chat template of scripted agents.
// With Qwen's vocabulary, the token ids in these answers decode to the right text, but Qwen's
// tokenizer would encode this text as other ids.
//
// With [Config.Engine], the calls of scripted agents are sent to an engine that the user provides.
// The engine receives the requests that a real server sends to SGLang: POST /generate with
// input_ids. The engine's tokens and log-probabilities are copied unchanged into the turns. So a
// small policy can be trained on rollouts that were collected from the simulator.
//
// # Choosing the kind of agent
//
// The client chooses the kind in the metadata when it creates the agent:
//
//	{"metadata": {"rollout": {"task_id": "tool#3", "sample_index": 0, "attempt": 1}}}
//
// If the task id names a case (as NAME, case:NAME or NAME#anything), the agent is replayed. Without
// such metadata, a marker [case:NAME] in the first message has the same effect. All other agents
// are scripted.
//
// # Time
//
// A send takes [Config.Latency]. If [Config.Capacity] is used up, the send first waits until
// another send ends. Until the send ends, its run has the status created and no steps or messages.
// Afterwards the run is finished and has all its steps and messages, even if the client
// disconnected, as on the real server.
//
// # Unstable agents
//
// [Config.Face] simulates replayed agents that change between requests without changing in length.
// The order or text of their tools can change, or their system message. The traces of a send show
// what the model saw in that send, and [Server.Given] returns the true prompts. With
// [Config.NoTraces], the server does not store traces.
//
// # Faults
//
// A [Fault] hits the given attempts, or a share of the samples that is drawn from the seed. Faults of
// the transport and the service are recoverable. Unless Fault.Attempts is set, they do not hit the
// second attempt at a sample. Faults of the data are final. They hit every attempt at the sample,
// because a real model would make the same mistake again. Traces also show these faults, in the
// engine's answer. If turns are missing or null, the corresponding part of the trace is also
// missing or null.
//
// # Not simulated
//
// Streams of tokens and of conversations (501), Redis, providers, embeddings, message batches and
// resets, usage and metrics of runs, sources, folders, blocks, groups, MCP, compactions, client
// tools and approvals that are not recorded, and canceling a send to a replayed agent.
package lettasim
