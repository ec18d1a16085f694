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
//	Policy      the policy failed                      answered     retry charged to Rerolls, else fail
//	Final       no other attempt can do better         answered     fail
//	Gone        nothing is left of an earlier process  answered     retry free
//	LostAnswer  it ended, its answer was lost          answered     retry charged
//	Busy        the server turned it away              answered     retry free; charged when only it is turned away
//	Slow        it used up its own time                –            retry charged
//	Moved       given up: another server takes it      –            retry free
//	Fault       no answer                              failed       see below
//	Cut         the run gave the rollout up            –            fail
//	Cancelled   the run stops                          –            stop
//	Fatal       no sample can do better                –            stop
//
// A retry that is charged when nothing is left of Config.Retries is a failure of the
// sample instead.
//
// After a Fault the sample is charged while the server is up, and retried free while it is
// down or has never answered. It is passed on to another server when this one is lost.
//
// # The server
//
//	       failures reach the threshold            Config.Outage passed,
//	       without an answer between them          or it never answered
//	up ──────────────────────────────────► down ────────────────────────► lost
//	 ▲         the breaker trips            │
//	 └──────────────────────────────────────┘
//	        any answer resets it
//
// A trip is a run of failures without an answer between them. The threshold is the number
// of samples that can fail before one of them fails twice, at least three.
//
//   - One sample alone never trips the breaker by its rollouts: the fault may be its own.
//     Failures to make an agent always count against the server.
//   - When the breaker trips, the caller checks the server. So it does when a sample that
//     was let in as a probe has failed. If the server answers the check, the samples of
//     the trip are at fault themselves: the breaker resets, and from then on each of their
//     failures is charged and counts for nothing else.
//   - Whatever the first failures of a trip charged is refunded when the breaker trips. A
//     sample that has nothing left to pay with therefore waits a moment before it fails:
//     the requests of a server that dies end at about the same time.
//   - An answer to a request from before the trip says nothing about it.
//
// # A busy server
//
// A refusal is an answer, and costs the sample nothing, with two exceptions. A sample that
// has met nothing but refusals for Config.BusyMax is charged. And a server that turns the
// sample away, but has room for a check right afterwards, is not busy: after five refusals
// each one is followed by a check, and when three in a row had room the sample is charged.
package breaker
