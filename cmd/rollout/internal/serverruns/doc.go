// Package serverruns lists server runs that other programs started. Each server run becomes a task
// that reads it (collect --from-runs).
//
//	feed.go      the loop: list runs, yield the ended runs, wait for the others
//	listing.go   one of the server's lists, oldest run first, and its cursor; agents by tag
//	waiting.go   runs that have not ended
//
// # No server run is lost
//
// The server lists runs by start time, not by end time, so the run that started first can end last.
// If a listed run has not ended, the feed keeps the run and checks it until it ends. Meanwhile, the
// listing continues with later runs.
//
// A run can become visible after runs that started later. One reason is that its start time
// precedes its commit in the database. The other reason is that the clocks of several server
// processes differ. Therefore the listing does not continue after the newest run, but after the
// newest run that is older than overlap. Runs that are listed twice are recognized by their ids.
//
// A run can be deleted with its agent. If the listing would continue after a deleted run, it
// continues after the newest run that is older.
//
// This state is not saved. The next process lists from the beginning, or from the time given by
// since=. The tasks of the run show which server runs are known, and the commit log shows which are
// done.
//
// All requests are GET requests, made one at a time.
package serverruns
