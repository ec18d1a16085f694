// Package limit finds the number of samples that a server can work on at the same time.
//
// The caller reports events to a Controller, such as a finished sample, a refused request, a server
// error or metrics of the engine. The Controller returns the limit and, if the limit changes, the
// reason. A Controller has no clock, no goroutine and no lock. Methods receive the time as an
// argument, and the caller serializes the calls.
//
// # Growth
//
//	at first         min(32, max)
//	slow start       doubles, until the first cut or the first growth without gain
//	afterwards       +5 % per round, at least +1
//
// A round ends when the number of finished samples reaches the limit, so that every sample in
// flight has been replaced once. A round counts toward growth if it is clean and the limit is in
// use. It is clean if at most one in a hundred samples hit a server failure. Whenever a sample
// finishes, the Controller compares the number of samples in flight with the limit. The limit is in
// use if this number is at least 0.9 of the limit for at least half of the finished samples.
//
// The proven limit is the highest limit that has shown a gain so far. Up to the proven limit, one
// clean round is enough for a growth. A cut lowers the proven limit to one below the limit that was
// cut.
//
// Beyond the proven limit, a growth must show a gain:
//
//  1. The limit doubles (slow start), or grows by five steps of 5 %.
//  2. One round is not counted, so that samples from before the growth can finish.
//  3. The next rounds are counted. The growth is kept if the rate, in samples per second, rose by
//     at least a third of the growth of the limit. For example, if the limit grew by 24 %, the rate
//     must rise by 8 %. To rule out chance, the rise must also be at least 2.5 standard deviations.
//  4. Otherwise the limit goes back to its value before the growth. The limit then grows again
//     after 8 counted rounds. After each further growth without gain, the wait doubles, up to 64
//     counted rounds. A cut during a growth delays the next growth in the same way.
//
// So the limit stays constant if a server's throughput no longer rises. For example, one Letta
// process reaches its maximum with a few sends.
//
// # Cuts
//
//	429; 502, 503 or a dead engine; refused          ×0.8
//	several samples lost their connection            ×0.8
//	several samples hit a server error               ×0.8
//	engine: KV cache usage above 0.9, a preemption   ×0.8
//	engine: KV cache usage above 0.8                 ×0.95
//
// Cuts are at least 15 s apart. Retry-After delays only the request that was refused, so a long
// delay cannot freeze the limit. Latency never causes a cut.
//
// A single server error, lost connection or timeout only makes its round unclean. "Several samples
// hit a server error" means at least three samples, and at least a tenth of the limit, within 5 s.
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
