// Package lettasim simulates a Letta server over real HTTP, for tests, benchmarks, the demo and
// `rollout simulate`.
//
// It simulates what a client of the released servers 0.16.7 and 0.16.8 can see of agents, sends,
// runs, steps, messages and provider traces: paths and their slashes, bodies, error formats,
// headers, and when objects disappear. make e2e-letta compares each route with the real servers,
// and lists the behavior that it does not compare (package live/cases). lettasim contains no model
// and executes no tool.
//
// # Two kinds of agents
//
// A replayed agent plays one recorded life, a [Case]. Its n-th send gets the n-th recorded answer,
// byte for byte, and its runs, steps, messages and traces are the recorded ones. Only physical ids
// are replaced, so that a case can be sampled many times, but never inside turns or inside text
// that the model saw. With [Config.KeepIDs] no id is replaced. With [Config.InputIDs] assistant
// turns and provider traces (request_json.input_ids) also have the recorded prompt ids, as on a
// newer server.
//
// A scripted agent gets generated answers. They are a pure function of the seed, the task id, the
// sample index and the messages, for any order and concurrency of requests. The attempt number does
// not matter. [Model] has the tokenizer and chat template of scripted agents. Their token ids also
// decode to the right text under a Qwen vocabulary, but Qwen's tokenizer would choose other ids.
//
// With [Config.Engine] an engine of the user makes the calls of scripted agents. It gets the
// requests that a real server sends to SGLang: POST /generate with input_ids. Its tokens and
// log-probabilities go unchanged into the turns. So a small policy can be trained on the rollouts
// of a whole collection.
//
// # Choosing the kind of agent
//
// The client chooses when it creates the agent, in metadata:
//
//	{"metadata": {"rollout": {"task_id": "tool#3", "sample_index": 0, "attempt": 1}}}
//
// A task id that names a case (as NAME, case:NAME or NAME#anything) makes a replayed agent. Without
// such metadata, the marker [case:NAME] in the first message does. All other agents are scripted.
//
// # Time
//
// A send takes [Config.Latency]. With [Config.Capacity], which bounds concurrent sends, it first
// waits for a free place. Until it ends, its run has the status created and no steps or messages.
// Afterwards the run is finished and complete, even if the client left, as on the real server.
//
// # Unstable agents
//
// [Config.Face] simulates replayed agents that change between requests without changing a length:
// the order of their tools, their system message, the texts of their tools. The traces of a send
// show what the model saw in that send, and [Server.Given] has its true prompts. [Config.NoTraces]
// keeps no traces.
//
// # Faults
//
// A [Fault] hits certain attempts, or a share drawn from the seed. Faults of transport and service
// are recoverable: they spare a second attempt at the sample, unless Fault.Attempts is set. Faults
// of the data are final: they hit every attempt at the sample, because a model would repeat itself.
// Traces show these faults too, in the engine's answer: if turns are missing or null, so is that
// part of the trace.
//
// # Not simulated
//
// Streams of tokens and of conversations (501), Redis, providers, embeddings, message batches and
// resets, usage and metrics of runs, sources, folders, blocks, groups, MCP, unrecorded compaction,
// unrecorded client tools and approvals, and canceling a send of a replayed agent.
package lettasim
