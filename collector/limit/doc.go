// Package limit finds out how many samples a server can work on at a time.
//
// A Controller is told what happened (a sample was finished, a request was turned
// away, a server error came back, what the engine's metrics say) and answers with a
// limit and, where it changes, why. It has no clock, no goroutine and no lock: every
// method takes the time, and the caller makes the calls one after the other.
//
// # Growth
//
//	start            min(32, max)
//	slow start       doubles, until the first cut or the first growth without a gain
//	afterwards       +5 % per round, at least +1
//
// A round is as many finished samples as the limit says: all that was in flight has
// been replaced once. It counts towards growth when it is clean (at most one
// failure of the server in a hundred samples) and when the limit binds (at least
// 0.9 of it was in use for half of the round).
//
// Up to the limit that was shown to pay off before, or to one below that of a cut,
// clean rounds are all it takes. Beyond it growth must show: a doubling, or five steps of 5 %, are followed by a
// round in which what was started before gets out of the way and then by rounds that
// are counted. The growth stays where samples per second rose by a third of what
// they would have on a server with room for all, and by more than chance explains
// (2.5 standard deviations of the counts). Else it is taken back, and is tried again
// after 8 such rounds, then 16, up to 64, and so it is where a cut ended it: a server whose throughput is flat, as that of
// one Letta process is beyond a few sends, stays where it was.
//
// # Cuts
//
//	429, 503, connection refused             ×0.8
//	several samples at once lost theirs      ×0.8
//	several samples at once met a 500        ×0.8
//	engine: KV cache above 0.9, preemptions  ×0.8
//	engine: KV cache above 0.8               ×0.95
//
// Cuts are at least 15 s apart, by this clock alone: what a server asks for in
// Retry-After delays that one request and is not known here, so that hints that are
// longer than the time between them freeze nothing. Latency never cuts. A single
// server error, a single connection that was reset, or a timeout, only spoils its
// round. Several at once are, of server errors, three samples and a tenth of the limit
// within 5 s; of lost connections, two samples and a twentieth of what ended within 15 s.
//
// Engine metrics bar growth while the KV cache is above 0.6 or requests queue. They
// hold for 15 s: without a newer poll nothing grows, and after 5 minutes without one
// the engine counts as not watched.
package limit
