// Package lettasim simulates a Letta server over real HTTP, for tests, benchmarks, the demo and
// `rollout simulate`.
//
// It simulates everything that a client of the released servers 0.16.7 and 0.16.8 can observe about
// agents, sends, runs, steps, messages and provider traces: paths and their slashes, bodies, error
// formats, headers, and when objects disappear. `make e2e-letta` compares each route with the real
// servers, and lists the behavior that it does not compare (package live/cases). lettasim contains
// no model and does not execute tools.
//
// # Two kinds of agents
//
// A replayed agent replays a [Case], the recorded life of one agent. Its n-th send gets the n-th
// recorded answer byte for byte, and its runs, steps, messages and traces are the recorded ones.
// Only physical ids are replaced, so that a case can be sampled many times. Ids in turns, and in
// text that the model saw, are not replaced. With [Config.KeepIDs], no ids are replaced. With
// [Config.InputIDs], assistant turns and provider traces (request_json.input_ids) also contain the
// recorded prompt ids, as on a newer server.
//
// A scripted agent gets generated answers. They depend only on the seed, the task id, the sample
// index and the messages. They do not depend on the attempt number, or on the order and concurrency
// of requests. [Model] contains the tokenizer and the chat template of scripted agents. Under a Qwen
// vocabulary, their token ids decode to the right text, but Qwen's tokenizer would encode the text
// as other ids.
//
// With [Config.Engine], the calls of scripted agents are sent to an engine of the user. It receives
// the requests that a real server sends to SGLang: POST /generate with input_ids. Its tokens and
// log-probabilities are copied unchanged into the turns. So a small policy can be trained on the
// rollouts of a whole collection.
//
// # Choosing the kind of agent
//
// The client chooses the kind in the metadata when it creates the agent:
//
//	{"metadata": {"rollout": {"task_id": "tool#3", "sample_index": 0, "attempt": 1}}}
//
// If the task id names a case (as NAME, case:NAME or NAME#anything), the agent is replayed. If there
// is no such metadata, a marker [case:NAME] in the first message has the same effect. All other
// agents are scripted.
//
// # Time
//
// A send takes [Config.Latency]. If [Config.Capacity] limits the number of concurrent sends, the
// send first waits for a free place. Until the send ends, its run has the status created and no
// steps or messages. Afterwards the run is finished and complete, even if the client disconnected,
// as on the real server.
//
// # Unstable agents
//
// [Config.Face] simulates replayed agents that change between requests without a change in length:
// the order of their tools, their system message, or the text of their tools. The traces of a send
// show what the model saw in that send, and [Server.Given] returns the true prompts. With
// [Config.NoTraces], the server does not store traces.
//
// # Faults
//
// A [Fault] hits the given attempts, or a share of the samples that is drawn from the seed. Faults of
// the transport and the service are recoverable. Unless Fault.Attempts is set, they do not hit the
// second attempt at a sample. Faults of the data are final. They hit every attempt at the sample,
// because a model would repeat itself. Traces show them too, in the engine's answer. If turns are
// missing or null, so is the corresponding part of the trace.
//
// # Not simulated
//
// Streams of tokens and of conversations (501), Redis, providers, embeddings, message batches and
// resets, usage and metrics of runs, sources, folders, blocks, groups, MCP, compactions, client
// tools and approvals that are not recorded, and canceling a send of a replayed agent.
package lettasim
