// Package letta speaks to a Letta server: the types of its API, a client for its
// calls. Package agent makes one agent per attempt of it.
//
// Everything said here about the server is about the released 0.16.7; a place such
// as agents.py:1771 is a line of letta-ai/letta at that tag, below letta/ or
// letta/server/rest_api/routers/v1/.
//
// # Token data
//
// A send answers with turns, the sampled ids and their log-probabilities, only
//
//   - in the JSON body of a non-streaming send (agents route; or conversations
//     route with streaming false),
//   - for agents of type letta_v1_agent or sleeptime_agent (agents/agent_loop.py:20),
//   - whose stored llm_config.return_token_ids is true, which the server sets by
//     itself for models of a provider of type sglang (provider_manager.py:1071-1086),
//   - and whose handle begins with sglang/ or whose provider is named like it
//     (letta_agent_v3.py:292-297).
//
// Otherwise turns is null, with status 200 and no word of it: AgentState.CheckTurns
// says so beforehand. The flags return_token_ids and return_logprobs of a request
// overwrite the stored ones together (agents.py:1771-1783), so one alone turns the
// data off. Package agent always sends both.
//
// # One reader for one body
//
// The turns are megabytes and the rest is not. A body is read once, as a stream,
// by a tokenize.Decoder, which puts the turns into arenas, skips logprobs and
// hands the rest over as a small JSON object; that is what LettaResponse decodes.
//
//	body ─► tokenize.Decoder ─► turns in a tokenize.Reply
//	                        └─► Rest ─► LettaResponse: messages, stop reason, usage
//
// Memory is bounded by how much is being read, ClientConfig.ReadBytes, and not by how
// many requests are in flight.
//
// # No send is ever repeated
//
// The server knows no idempotency for a send: a repeated user message is appended
// twice, a repeated tool return makes the model run again behind a message that
// nobody wrote (agents/helpers.py:231-286). So the body of a send cannot be
// rewound, which keeps net/http from repeating it, redirects are not followed, and
// nothing here tries again.
//
// # Errors
//
// Every failed call is an *APIError that wraps one of the sentinels: ErrBusy, ErrTimeout, …
//
// # Reading order
//
// request.go, response.go, message*.go, agentstate.go, step.go and trace.go are
// the wire; extra.go says how unknown fields are kept; client.go and send.go are
// the HTTP; calls_*.go the calls.
package letta
