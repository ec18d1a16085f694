// Package cases drives the built program against a real Letta server whose engine is
// scripted, and compares every row with what the engine saw. It holds only tests; make
// e2e-letta runs them.
//
//	program ─► Letta ─► [rollout tap] ─► engine ─► log of calls ─┐
//	   └─► rows, failures ───────────────────────────────────────┴─► truth.Compare
//
// # Forms
//
// One test starts one Letta and plays one case after the other, so a part of it can be run:
//
//	go test -short -run 'TestLetta/(plain|tap)' ./cmd/rollout/internal/live/cases
//
// The short form is a choice of them with one sample of most tasks. The full form has all of
// them and more samples, to two servers with a pool of connections to PostgreSQL, which halves
// the CPU time of a rollout, where it does not matter. Both have cases through `rollout tap`, while the server
// keeps no traces and the order of the tools flips in its database: every row of those must be
// exact.
//
// # What is shown where
//
//	what lettasim simulates      conform_test.go; the checks, conform_checks_test.go
//	what a model may say         tasks_test.go; its words are scripts of package enginesim
//	ways to drive and to write   ways_test.go
//	what breaks for a moment     faults_test.go; for long or for good, outages_test.go
//	a tap                        tap_test.go; its disk full, disk_test.go; continuity, spliced_test.go;
//	                             continuity that a collection does not read, untapped_test.go
//	a tap in front of old agents existing_test.go
//	runs of other programs       fromruns_test.go; curled_test.go, by every route and followed
//	that all these are equal     same_test.go: without a tap, with one, and by curl
//	CPU and requests             share_test.go
//
// # Equal rows
//
// No two agents have the same prompt: the server writes the agent's id and the time into it, and
// lists the tools in any order. So for same_test.go the engine samples by the marker alone, and
// contexts are compared without these three. That their ids are right is shown as everywhere,
// by the engine's log. Where the rollouts of one run are read a second time, from what the
// server keeps of them, ids are compared with ids.
package cases
