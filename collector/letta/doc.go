// Package letta is a client for the API of a Letta server. From this module, it imports only
// package tokenize, which decodes the token data, and package spelling.
//
//	client, err := letta.NewClient(letta.ClientConfig{BaseURL: "http://localhost:8283"})
//	agent, err := client.CreateAgent(ctx, []byte(`{"model": "sglang/qwen3"}`))
//	var turns tokenize.Reply
//	answer, err := client.Send(ctx, agent.ID, &letta.LettaRequest{
//		Messages: letta.InputMessages{letta.UserText("Hi.")},
//	}, "", &turns)
//
// Each method of [Client] makes one API call: one HTTP exchange, or one exchange per page of a
// list. Package agent decides which calls to make and what a failure means for a rollout.
//
// This package supports server version 0.16.7. It also supports 0.16.8, which differs only in the
// tool sandbox. A reference such as agents.py:1771 names a line in letta-ai/letta at the tag
// 0.16.7. The paths are relative to letta/ or letta/server/rest_api/routers/v1/.
//
// # Token data
//
// A send returns turns (the sampled ids and their log-probabilities) only if all of these
// conditions hold:
//
//   - The send is not streaming. It uses the agents route, or the conversations route with
//     streaming set to false.
//   - The agent's type is letta_v1_agent or sleeptime_agent (agents/agent_loop.py:20).
//   - The agent's stored llm_config.return_token_ids is true. The server sets it for models from a
//     provider of type sglang (provider_manager.py:1071-1086).
//   - The model's handle begins with sglang/, or the provider's name contains sglang
//     (letta_agent_v3.py:292-297).
//
// Otherwise turns is null, and the answer has status 200 and no explanation.
// [AgentState.CheckTurns] checks the agent before a send. If a request contains return_token_ids or
// return_logprobs, the server overwrites both stored flags (agents.py:1771-1783). So one flag alone
// turns the token data off. Send both flags or neither.
//
// # Received objects keep their JSON text
//
// Every received object keeps its JSON text in a field named JSON, next to the fields that this
// module needs. All other members are only in the JSON text. Each byte is parsed once. Objects that
// the client sends are plain structs.
//
// The answer to a send is also parsed once, while it streams in. A tokenize.Decoder writes the
// turns into the caller's memory, skips the data that is not needed, and returns the rest as a
// small JSON object.
//
//	body ─► tokenize.Decoder ─► turns, in a tokenize.Reply
//	                        └─► the rest ─► LettaResponse: messages, stop reason, usage
//
// ClientConfig.ReadBytes limits the total size of all replies that are being read. So memory use
// does not grow with the number of requests in flight.
//
// # No send is ever repeated
//
// A send is not idempotent. If a user message is sent twice, the server appends it twice. If a tool
// return is sent twice, the model runs again after a message that no user wrote
// (agents/helpers.py:231-286). So this package never retries a send. The body of a send cannot be
// rewound, so net/http cannot repeat it either, and redirects are not followed. Only GET and DELETE
// are retried, up to ClientConfig.ReadRetries times.
//
// # Errors
//
// A failed call returns an [*APIError]. The error wraps one of nine sentinels:
//
//	ErrConnection   refused, reset, ended too early        no answer
//	ErrTimeout      longer than ClientConfig allows        no answer, 408, 504
//	ErrIdle         no byte for IdleBodyTimeout            no answer
//	ErrBusy         retry later, see RetryAfter            429, 409 because of a lock
//	ErrUnavailable  the server or its database is down     502, 503
//	ErrServer       a failure of unknown cause             500, an answer that is not JSON
//	ErrAuth         the password is refused                401, 403
//	ErrRejected     the request is refused                 other 4xx, 501
//	ErrUnusable     no request of this kind will succeed   3xx, TLS, a model's provider refuses
//
// If a reply has invalid token data, the error wraps a *tokenize.DecodeError instead. If the
// caller's context ended, the error wraps the context's error and cause.
//
// No error contains a secret. In all text from a server, *** replaces the password, the values of
// configured headers, and the secrets of an agent's tools.
//
// # Reading order
//
//   - config.go, client.go
//   - transport.go, call.go: one exchange
//   - send.go: the send; calls_*.go: all other calls
//   - errors.go, classify.go
//   - message*.go, request.go, response.go, agentstate.go, run.go, step.go, trace.go, tool.go:
//     the API types, which plan.go and scanner.go parse
package letta
