// Package breaker decides what the end of an attempt means: whether its server is taken
// to be up or down, and whether its sample pays for the failure.
//
// A server that is down must not turn samples into failures, and a sample that fails on
// every try must not take a server down. From the outside both look the same: a
// connection that ends, a 500, a request that is not answered. A Breaker tells them apart
// by who failed and by what else the server answers.
//
// There is one Breaker for each server and one Budget for each sample. Both are plain
// state: no clock, no goroutine and no lock. Every method takes the time, and the caller
// makes the calls one after the other.
//
// # What is decided
//
//	how the attempt ended                              the server   the sample
//	Done        the sample is with the sink            answered     over
//	Policy      the policy failed                      answered     retry charged to DataRetries, else fail
//	Final       no other attempt can do better         answered     fail
//	Gone        nothing is left of an earlier process  answered     retry free
//	LostAnswer  it ended, its answer was lost          answered     retry charged
//	Busy        the server turned it away              answered     retry free; charged: see "A busy server"
//	Slow        it used up its own time                –            retry charged
//	Moved       given up: another server takes it      –            retry free
//	Fault       it failed in a way that may be the     failed       see below
//	            server's: 500, 503, refused, reset,
//	            silent
//	Cut         the run gave the rollout up            –            fail
//	Cancelled   the run stops                          –            stop
//	Fatal       no sample can do better                –            stop
//
// A dash means that the end says nothing about the server. A retry that is charged when
// nothing is left of Config.Retries is a failure of the sample instead. The caller translates
// a failure into a kind: see worker.end in package collector.
//
// After a Fault the sample is charged while the server is up, and retried free while it is
// down or has never answered. The sample is passed on to another server when its own is given
// up.
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
// A series is failures of one server without an answer between them. The threshold is the
// number of samples in hand (before the first answer: Limit), and at least three.
//
//   - The rollouts of one sample alone never trip the breaker: the fault may be its own.
//     Failures to make an agent always count against the server.
//   - When the breaker trips, the caller checks the server. So it does when a sample that
//     was let in as a probe has failed. If the server answers the check, the samples of
//     the series are at fault themselves: the breaker resets, and from then on each of their
//     failures is charged and counts for nothing else.
//   - When the breaker trips, charges made earlier in the series are given back. A sample on
//     its last retry therefore waits for up to a second to see whether the breaker trips: the
//     requests of a server that dies end at about the same time. If it did not trip, the
//     caller checks the server for the sample, once: a check that is not answered trips the
//     breaker.
//   - An answer that came before the series began says nothing about it.
//
// # A busy server
//
// A refusal is an answer, and costs the sample nothing, with two exceptions. A sample that
// has met nothing but refusals for Config.BusyMax is charged. And a server that turns the
// sample away, but has room for a check right afterwards, is not busy: after five refusals
// each one is followed by a check, and when three in a row had room the sample is charged.
package breaker
