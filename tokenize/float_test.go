package tokenize_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// TestFloatExact checks that the fast conversion equals strconv bit by bit, for numbers that
// programs print and numbers at the border of two float32. It tests float32Of alone and a whole
// reply, which uses the eight-digit path.
func TestFloatExact(t *testing.T) {
	t.Parallel()
	total := 3_000_000
	if testing.Short() || raceEnabled {
		total = 200_000
	}
	const batch = 2000
	r := rand.New(rand.NewPCG(1, 2))
	d := tokenize.NewDecoder(tokenize.DecoderConfig{})
	var reply tokenize.Reply
	var body []byte
	var want []uint32
	slow, printed := 0, 0
	for done := 0; done < total; done += batch {
		body = append(body[:0], `{"turns":[{"role":"assistant","output_token_logprobs":[`...)
		want = want[:0]
		for i := range batch {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, '[')
			from := len(body)
			body = appendNumber(body, r, i%7)
			number := body[from:]
			f, _ := strconv.ParseFloat(string(number), 64)
			bits := math.Float32bits(float32(f))
			want = append(want, bits)
			got, isSlow := tokenize.Float32Of(number)
			if math.Float32bits(got) != bits {
				t.Fatalf("Float32Of(%s) = %08x, want %08x", number, math.Float32bits(got), bits)
			}
			if i%7 < 2 {
				printed++
				if isSlow {
					slow++
				}
			}
			body = append(body, ",7,null]"...)
		}
		body = append(body, "]}]}"...)
		if err := d.DecodeBytes(body, &reply); err != nil {
			t.Fatal(err)
		}
		for i, v := range reply.Turns[0].Logprobs {
			if math.Float32bits(v) != want[i] {
				t.Fatalf("number %d of %.200s…: %08x, want %08x", i, body, math.Float32bits(v), want[i])
			}
		}
	}
	if slow*1000 > printed {
		t.Errorf("%d of %d printed float32 values took the slow path", slow, printed)
	}
}

func appendNumber(b []byte, r *rand.Rand, kind int) []byte {
	switch kind {
	case 0: // a float32 as a server prints it, as a double
		v := -float64(float32(r.ExpFloat64()))
		return strconv.AppendFloat(b, v, 'f', -1, 64)
	case 1: // small, with an exponent
		return strconv.AppendFloat(b, -float64(float32(math.Pow(10, -8+6*r.Float64()))), 'e', -1, 64)
	case 2: // any double in range
		return strconv.AppendFloat(b, -r.ExpFloat64(), 'g', -1, 64)
	case 3: // doubles next to the midpoint of two float32
		f := math.Float32frombits(0x3a000000 + r.Uint32N(0x08000000))
		mid := (float64(f) + float64(math.Nextafter32(f, 2*f))) / 2
		bits := math.Float64bits(mid) + uint64(r.IntN(25)) - 12
		return strconv.AppendFloat(b, math.Float64frombits(bits), 'f', -1, 64)
	case 4: // the midpoint itself, with all its digits or truncated
		f := math.Float32frombits(0x3a000000 + r.Uint32N(0x08000000))
		mid := (float64(f) + float64(math.Nextafter32(f, 2*f))) / 2
		return big.NewFloat(mid).Append(b, 'f', 10+r.IntN(40))
	case 5: // small without an exponent: leading zeros, so digits after the sixteenth count
		return big.NewFloat(-math.Pow(10, -3-9*r.Float64())).Append(b, 'f', 17+r.IntN(7))
	default: // any decimal
		if r.IntN(2) == 0 {
			b = append(b, '-')
		}
		b = strconv.AppendUint(b, r.Uint64()>>r.IntN(64), 10)
		b = append(b, '.')
		for range 1 + r.IntN(25) {
			b = append(b, byte('0'+r.IntN(10)))
		}
		if r.IntN(3) == 0 {
			b = append(b, "eE"[r.IntN(2)])
			b = strconv.AppendInt(b, int64(r.IntN(90)-60), 10)
		}
		return b
	}
}
