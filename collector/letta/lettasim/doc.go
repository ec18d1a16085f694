// Package lettasim is a simulated Letta server over real HTTP: the server that
// tests, benchmarks, the demo and `rollout simulate` talk to.
//
// It simulates what a client of the released servers 0.16.7 and 0.16.8 can see of
// agents, sends, runs, steps, messages and provider traces: paths and their slashes,
// bodies, error shapes, headers, and when objects are gone. make e2e-letta compares each
// route with the real servers, and lists the behavior that it does not compare (package
// live/cases). lettasim is neither a model nor an engine: it generates nothing, and executes no
// tool.
//
// # Two kinds of agents
//
// A replayed agent lives one recorded life, a [Case]: its n-th send is answered
// with the n-th recorded answer, byte for byte, and its runs, steps, messages
// and traces are the recorded ones. Only physical ids are exchanged, so that one
// case can be sampled many times: never inside turns, and never inside the text
// that the model saw. [Config.KeepIDs] turns even that off. With
// [Config.InputIDs] assistant turns also carry the recorded prompt ids, as a
// newer server would send them, and so do provider traces, in request_json.input_ids.
//
// A scripted agent is made up. What it answers is a pure function of the seed,
// the task id, the sample index and the messages sent, whatever the order and
// the concurrency of the requests; an attempt number changes no answer. Its
// token ids decode to its text under a Qwen vocabulary but are not canonical, so
// a client can know its prompts through InputIDs only.
//
// With [Config.Engine] the calls of scripted agents are made by an engine of the user's,
// which is asked as a real server asks SGLang: POST /generate with input_ids. What it
// samples and its log-probabilities go unchanged into the turns. A small policy can so be
// trained on what the whole way of a collection makes of its rollouts.
//
// # Which agent plays what
//
// The client says so when it creates the agent, in metadata:
//
//	{"metadata": {"rollout": {"task_id": "tool#3", "sample_index": 0, "attempt": 1}}}
//
// A task id that names a case, alone, as case:NAME, or as NAME#anything, makes a
// replayed agent. Without such metadata the marker [case:NAME] in the first
// message does. Everything else is scripted.
//
// # Time
//
// A send takes as long as [Config.Latency] says, and waits before it for a place where
// [Config.Capacity] bounds how many are worked on at a time. Until then its run is created
// and has no steps and no messages; afterwards it is finished and has all of
// them, whether the client waited or not, as on the real server.
//
// # What does not stay
//
// [Config.Face] plays a server on which replayed agents change behind the client's back
// without changing a length: the order of their tools, their system message, the texts
// of their tools, at any look. The traces of a send show what that send was given, and
// [Server.Given] has its true prompts. [Config.NoTraces] keeps no traces.
//
// # Faults
//
// A [Fault] hits the attempts that it is aimed at, or a share drawn from the seed.
// Faults of transport and service are recoverable: a second attempt at the sample
// is spared, unless Fault.Attempts says otherwise. Faults of the data are final:
// every attempt at the sample meets them, as a model would repeat itself.
//
// Faults of the data show in traces too, as the engine answered them: where turns are
// missing or null, so is what the trace would say.
//
// # Not simulated
//
// Streams of tokens and of conversations (501), Redis, message batches, sources, folders,
// blocks, groups, MCP, compaction other than recorded, client tools and approvals
// other than recorded, cancelling a send of a replayed agent. The relations of
// token ids to the model's real tokenizer: a prompt that is rebuilt from the
// stored messages of a scripted agent has another length than the server says.
package lettasim
