// Package serverruns lists the server runs that other programs drove, as tasks that read them
// (collect --from-runs).
//
//	feed.go      the way: list, give what has ended, wait for the rest
//	listing.go   one list of the server, oldest first, and where it goes on
//	waiting.go   those that have not ended
//	tagged.go    which agents have a tag
//
// # No server run is lost
//
// The server lists runs by the moment when they began, not when they ended. So a run that was
// listed and has not ended is kept aside and looked at again until it has; the listing goes on
// behind it. What began first may end last.
//
// A run may also become visible behind others that began later: its time is taken before it is
// committed, and several processes have several clocks. So the listing does not go on behind
// the newest run but behind the newest that is older than a minute or two (overlap), and what
// it shows a second time is known.
//
// The listing continues after a run. If that run was deleted with its agent, the listing
// continues after the newest run that is older.
//
// Nothing of this is kept: the next process lists from the beginning, or from since=. The
// tasks of the run say what is known, and its commit log what is done.
//
// Nothing is asked but GETs, one at a time.
package serverruns
