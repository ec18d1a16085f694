// Package record holds the data of one rollout: the requests and answers of the client, and the
// data that the server stores about the rollout.
//
//	client      Rollout   agent, system text, conversation, sends
//	server run  Run       its steps and messages
//	step        Trace     the request and the answer of the engine
//
// A [Rollout] belongs to one attempt. The backend adds data to the Rollout while it sends requests.
// Package prompt reads the Rollout to find the prompt and the finish reason of each call. Package
// agent reads the Rollout to reconstruct a lost answer.
//
// # Fetched once, parsed once
//
// All data is fetched on first use and then kept, with the exceptions below. The result of a failed
// request is not kept, so the next caller repeats the request. All methods are safe for concurrent
// use. Concurrent callers that need the same data share a single request. [Rollout.Requests] counts
// the requests by the kind of data.
//
// Five methods are exceptions:
//
//	Rollout.AgentNow            refetches the agent and its system message on every call, to compare
//	                            them with their state before the first send. Call it after the last
//	                            send
//	Rollout.AgentState          refetches only the agent, for the same comparison
//	Rollout.ConversationSystem  refetches the conversation on every call
//	Rollout.TraceSoon           refetches a missing trace
//	Run.Forget                  drops steps and messages that were fetched before the server had
//	                            stored all of them. The next caller refetches them
//
// # Lifetime on the server
//
// The server deletes runs, steps and messages together with the agent. Only traces remain. So read
// all data except traces before the backend closes the agent.
package record
