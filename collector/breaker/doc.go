// Package breaker decides what the end of an attempt means: whether its server counts as up or
// down, and whether its sample is charged for the failure.
//
// A server that is down must not turn samples into failures, and a sample that fails on every try
// must not make a server count as down. In both cases the failures look the same: a lost
// connection, a 500, a request without an answer. A Breaker distinguishes the two cases by the
// samples that failed and by the server's other answers.
//
// There is one Breaker per server and one Budget per sample. Neither has a clock, a goroutine or a
// lock. Methods receive the time as an argument, and the caller serializes the calls.
//
// # Decisions
//
//	end of the attempt                                 the server   the sample
//	Done        the sink has the sample                answered     over
//	Policy      the policy failed                      answered     retry charged to DataRetries, else fail
//	Final       no other attempt can do better         answered     fail
//	Gone        nothing is left to take over           answered     retry free
//	LostAnswer  it ended, but its answer was lost      answered     retry charged
//	Busy        the server refused the request         answered     retry free; charged: see "A busy server"
//	Own         the agent itself failed: it used up    –            retry charged
//	            its time limit, or made no call
//	Moved       another server takes the sample        –            retry free
//	Fault       a failure that the server can cause:   failed       see below
//	            500, 503, refused, reset, silent
//	Cut         the run cut the rollout off            –            fail
//	Cancelled   the run stops                          –            stop
//	Fatal       no sample can do better                –            stop
//
// A dash means that the end shows nothing about the server. If the charges exceed Config.Retries,
// there is no retry and the sample fails. attempt.end in package collector maps a failure to a
// kind.
//
// After a Fault, the sample is charged if the server is up. The retry is free if the server is down
// or has never answered. If the server is given up, the sample is passed on to another server.
//
// # The server
//
//	       failures reach the threshold            Config.Outage passed,
//	       without an answer between them          or it never answered
//	up ──────────────────────────────────► down ────────────────────────► given up (lost)
//	 ▲         the breaker trips            │
//	 └──────────────────────────────────────┘
//	        any answer resets it
//
// A series is a sequence of failures of one server without an answer between them. The threshold is
// the number of samples in flight, but at least three. Before the first answer, End.Limit is used
// instead of that number.
//
//   - The rollouts of one sample alone never trip the breaker, because the sample might be the
//     cause. Failures to make an agent always count against the server.
//   - When the breaker trips, and when a probe fails, the caller checks the server. If the server
//     answers the check, the samples of the series caused the failures. The breaker resets. From
//     then on, each failure of these samples is charged and has no other effect.
//   - When the breaker trips, earlier charges for the series are refunded. So before a sample fails
//     on its last retry, the caller waits up to a second to see whether the breaker trips. This is
//     long enough, because all requests to a dying server end at about the same time. If the
//     breaker does not trip, the caller checks the server, once per sample. If the server does not
//     answer the check, the breaker trips.
//   - An answer from before the series does not end the series.
//
// # A busy server
//
// A refusal is an answer, and costs the sample nothing, with two exceptions. First, a sample that
// has received only refusals for at least Config.BusyMax is charged. Second, a server that refuses
// the sample but passes a check immediately afterward is not busy. After five refusals, a check
// follows each further refusal. After three passed checks in a row, the sample is charged.
package breaker
