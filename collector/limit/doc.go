// Package limit finds the number of samples that a server can work on at the same time.
//
// The caller reports events to a Controller: a finished sample, a refused request, a server error,
// metrics of the engine. The Controller returns the limit and, if the limit changes, the reason. It
// has no clock, no goroutine and no lock. Methods receive the time as an argument, and the caller
// serializes the calls.
//
// # Growth
//
//	at first         min(32, max)
//	slow start       doubles, until the first cut or the first growth without gain
//	afterwards       +5 % per round, at least +1
//
// A round ends when the number of finished samples reaches the limit, so that every sample in
// flight has been replaced once. A round counts towards growth if it is clean and the limit is in
// use. It is clean if at most one in a hundred samples met a failure of the server. The limit is in
// use if, for at least half of the finished samples, the number of samples in flight was at least
// 0.9 of the limit.
//
// Up to the proven limit, which is the highest limit that has paid off so far, one clean round is
// enough. A cut lowers the proven limit to one below the limit that was cut.
//
// Beyond the proven limit, a growth must show a gain:
//
//  1. The limit doubles (slow start), or grows by five steps of 5 %.
//  2. One round passes without being counted, so that the samples started earlier can finish.
//  3. The next rounds are counted. The growth is kept if samples per second rose by at least a
//     third of the growth of the limit. For example, if the limit grew by 24 %, samples per second
//     must rise by 8 %. The rise must also be larger than chance explains: 2.5 standard deviations
//     of the counts.
//  4. Otherwise the limit goes back to its value before the growth. The next tries follow after 8,
//     16, 32 and then always 64 counted rounds. After a cut during a growth, the next try waits in
//     the same way.
//
// So the limit stays constant for a server whose throughput no longer rises, such as one Letta
// process with more than a few sends.
//
// # Cuts
//
//	429; 502, 503 or a dead engine; refused          ×0.8
//	several samples lost their connection            ×0.8
//	several samples met a server error               ×0.8
//	engine: KV cache usage above 0.9, a preemption   ×0.8
//	engine: KV cache usage above 0.8                 ×0.95
//
// Cuts are at least 15 s apart. Retry-After delays only the request that was refused, so a long
// delay cannot freeze the limit. Latency never causes a cut.
//
// A single server error, lost connection or timeout only makes its round unclean. "Several samples
// met a server error" means at least three samples, and at least a tenth of the limit, within 5 s.
// "Several samples lost their connection" means at least two samples, and at least a twentieth of
// all samples that ended, within 15 s.
//
// # Engines
//
// The limit does not grow while the engine's KV cache usage is above 0.6, or while the engine's
// queue is longer than a tenth of the limit. A poll of the metrics is valid for 15 s. After that,
// the limit does not grow until the next poll. After 5 minutes without a poll, the engine counts as
// not watched.
package limit
