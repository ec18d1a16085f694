// Package serverruns lists server runs that other programs started. For each server run, "rollout
// collect --from-runs" creates a task that reads the run.
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
// A run can appear in the list only after runs that started later. One reason is that the server
// sets a run's start time before it commits the run to the database. The other reason is that the
// clocks of several server processes differ. Therefore each pass relists the most recent two
// minutes (the constant overlap) of the previous pass. Runs that are listed twice are recognized by
// their ids.
//
// A run can be deleted with its agent. If the run after which the listing would continue has been
// deleted, the listing continues after the newest older run.
//
// The position in the listing is not saved. The next process lists from the beginning, or from the
// time given by since=. The tasks of the run show which server runs are known, and the commit log
// shows which are done.
//
// All requests are GET requests, made one at a time.
package serverruns
