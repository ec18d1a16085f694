package lettasim

import (
	"encoding/binary"
	"hash/fnv"
	"math"
)

// An rng is a small seeded random number generator (splitmix64). Every generator is seeded with a
// digest of its purpose, so draws do not depend on the order of requests.
type rng struct{ state uint64 }

// draw returns the generator for the given seed and words.
func draw(seed uint64, words ...string) *rng {
	h := fnv.New64a()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	_, _ = h.Write(b[:])
	for _, w := range words {
		binary.LittleEndian.PutUint64(b[:], uint64(len(w)))
		_, _ = h.Write(b[:])
		_, _ = h.Write([]byte(w))
	}
	return &rng{mix(h.Sum64())}
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// float returns a uniformly distributed number in [0, 1).
func (r *rng) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// n returns a uniformly distributed number in [0, n). n must be positive.
func (r *rng) n(n int) int { return int(r.next() % uint64(n)) }

func (r *rng) normal() float64 {
	return math.Sqrt(-2*math.Log(1-r.float())) * math.Cos(2*math.Pi*r.float())
}

// The method in draws a number from the range. In a wide range, the logarithm is uniformly
// distributed, so numbers near Min are more likely.
func (r *rng) in(g Range) int {
	if g.Max <= g.Min {
		return g.Min
	}
	if g.Max-g.Min < 8 {
		return g.Min + r.n(g.Max-g.Min+1)
	}
	low, high := math.Log(float64(g.Min)+1), math.Log(float64(g.Max)+1)
	return min(g.Max, int(math.Exp(low+r.float()*(high-low)+1e-9)-1+0.5))
}

func (r *rng) uuid() string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], r.next())
	binary.BigEndian.PutUint64(u[8:], r.next())
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	const hex = "0123456789abcdef"
	out := make([]byte, 0, 36)
	for i, c := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, hex[c>>4], hex[c&15])
	}
	return string(out)
}
