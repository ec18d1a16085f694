// Package limit finds the number of samples that a server can work on at a time.
//
// The caller reports events to a Controller: a finished sample, a refused request, a server error,
// metrics of the engine. The Controller returns the limit and, if the limit changes, the reason. It
// has no clock, no goroutine and no lock: every method takes the time, and the caller serializes
// the calls.
//
// # Growth
//
//	at first         min(32, max)
//	slow start       doubles, until the first cut or the first growth without gain
//	afterwards       +5 % per round, at least +1
//
// A round is as many finished samples as the limit: every sample in flight has been replaced once.
// A round counts towards growth if it is clean and the limit is in use. It is clean if at most one
// in a hundred samples met a failure of the server. The limit is in use if at least 0.9 of it was
// in flight for half of the round.
//
// Up to a limit that has already paid off (the proven limit), a clean round is enough. A cut lowers
// the proven limit to one below the limit before the cut.
//
// Beyond the proven limit a growth must show a gain:
//
//  1. The limit doubles (slow start), or grows by five steps of 5 %.
//  2. One round passes in which the samples that were started before are finished.
//  3. The next rounds are counted. The growth stays if samples per second rose by at least a third
//     of the growth of the limit (limit +24 %: samples per second +8 %), and by more than chance
//     explains: 2.5 standard deviations of the counts.
//  4. Otherwise the limit goes back. The next tries come after 8, 16, 32 and then 64 counted rounds.
//     A growth that ended with a cut waits in the same way.
//
// So a server with flat throughput, such as one Letta process beyond a few sends, stays at its
// limit.
//
// # Cuts
//
//	429; 502, 503 or a dead engine; refused          ×0.8
//	several samples lost their connection            ×0.8
//	several samples met a server error               ×0.8
//	engine: KV cache above 0.9, or a preemption      ×0.8
//	engine: KV cache above 0.8                       ×0.95
//
// Cuts are at least 15 s apart. Retry-After delays only its own request, so a long delay cannot
// freeze the limit. Latency never causes a cut.
//
// One server error, one lost connection or one timeout only makes its round unclean. Several server
// errors means three samples and a tenth of the limit within 5 s. Several lost connections means
// two samples and a twentieth of all samples that ended within 15 s.
//
// # Engines
//
// The limit does not grow while the KV cache of the engine is above 0.6 or requests queue there. A
// poll of the metrics is valid for 15 s; after that the limit does not grow until the next poll.
// After 5 minutes without a poll the engine counts as not watched.
package limit
