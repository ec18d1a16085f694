// Package serverruns lists the server runs of other programs. Each becomes a task that reads the
// server run (collect --from-runs).
//
//	feed.go      the loop: list, yield the ended runs, wait for the others
//	listing.go   one list of the server, oldest run first, and its cursor; agents by tag
//	waiting.go   runs that have not ended
//
// # No server run is lost
//
// The server lists runs by their start time, not their end time, so the run that started first can
// end last. The feed keeps a listed run that has not ended and checks it again until it ends. The
// listing continues after it.
//
// A run can also become visible after runs that started later, because its start time is earlier
// than its commit and the clocks of several processes differ. So the listing continues after the
// newest run that is older than overlap, not after the newest run. Runs that are listed twice are
// recognized by id.
//
// If the run after which the listing continues was deleted with its agent, the listing continues
// after the newest older run.
//
// This state is not saved. The next process lists from the beginning, or from since=. The run's
// tasks show which server runs are known, and its commit log shows which are done.
//
// All requests are GETs, one at a time.
package serverruns
