// Package live runs a real Letta server for tests: PostgreSQL with pgvector, and one or
// several server processes on it. Only tests import it.
//
//	l := live.Start(t, live.Config{Servers: 2})
//	handle := l.Provider(t, "sglang-engine", engineURL) // what agents name as their model
//	… rollout collect --server l.URLs[0] --model handle --tokenizer l.Model …
//	l.Kill(t, 0); l.Restart(t, 0)
//	l.Postgres.Kill(t); l.Postgres.Restart(t)
//
// The way of a start:
//
//	.ci/letta.sh ─► .build/letta-VERSION        the packages, once (make letta)
//	               .build/letta-VERSION/state   initdb, migrations, tokenizer, once (state.go)
//	Start ─► folder of its own in the system's temporary folder
//	       ├─ pg/       copy of state/pg, with its own PostgreSQL   (postgres.go)
//	       ├─ home-0/   of the first server, home-1/ of the second  (server.go)
//	       └─ logs/     what each process printed
//
// The variable ROLLOUT_LETTA names the installation; make e2e-letta sets it. Without it
// every test that calls [Start] is skipped, and says how to get one.
//
// # What is left behind
//
// Nothing: every process is the leader of a process group, and a small shell (keeper.go)
// waits for the end of the test's own process at the other end of a pipe. However that one
// ends, by itself, by a panic, Ctrl-C or SIGKILL, the keeper then kills the groups and
// removes the folder. The logs of a test that failed go to letta-logs beside the installation.
//
// # Ports
//
// Ports come from below the range from which the system gives out ports, so that no other
// process gets one of them between the choice and the start of the server, ten seconds later.
package live
