package tap

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A fleet is a random set of rollouts, and the calls of them that a tap saw.
type fleet struct {
	rollouts []Rollout
	prompts  map[string][][]int32 // by rollout: what the engine got for each call
	sent     map[string][][]int32 // what the server sent
	repeats  map[string]int       // by rollout and prompt: answers that were not shown
	seen     []*Call              // in the order of delivery
	lost     []*Call              // dropped by the tap
}

// A fleetConfig sets the probability of each irregularity in a fleet.
type fleetConfig struct {
	shared    float64 // an agent has another agent's prompt
	rewritten float64 // the server renders an output differently in the next prompt
	compacted float64 // a prompt starts a new history
	short     float64 // an output is short, and the engine is sure of it
	planted   float64 // log-probabilities do not depend on the prompt
	sure      bool    // planted applies only to short outputs
	dropped   float64 // the tap drops a call
	twice     float64 // a call is sampled twice, and its first answer is not shown
	spliced   float64 // the tap replaces the server's prompt
	uncounted float64 // the server reports no counts
	named     bool    // prompts name their agent
	skew      time.Duration
}

// engine returns the log-probabilities of an output. Each is a function of the whole prompt, unless
// the engine is sure of the token, or the value is planted.
func (c *fleetConfig) engine(r *rand.Rand, prompt, output []int32) []float32 {
	sum := uint64(14695981039346656037) // FNV-1a of the ids
	add := func(id int32) { sum = (sum ^ uint64(id)) * 1099511628211 }
	if r.Float64() >= c.planted || c.sure && len(output) >= tellingTokens {
		for _, id := range prompt {
			add(id)
		}
	}
	out := make([]float32, len(output))
	for i, id := range output {
		add(id)
		add(int32(i))
		switch {
		case id < 50: // the engine is sure
			out[i] = -float32(sum%2) * 1.1920929e-07
		default:
			out[i] = -0.002 - float32(sum%(1<<20))/(1<<20)
		}
	}
	return out
}

// output returns one of a few short outputs that the engine is sure of, or a long one.
func (c *fleetConfig) output(r *rand.Rand) []int32 {
	if r.Float64() < c.short {
		return []int32{int32(r.IntN(2)), 7}
	}
	out := make([]int32, tellingTokens+r.IntN(8))
	for i := range out {
		out[i] = int32(100 + r.IntN(50))
	}
	return out
}

// clock is when the first send of every fleet begins.
var clock = time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)

func repeatOf(rollout string, prompt []int32) string {
	key := []byte(rollout)
	for _, id := range prompt {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
	}
	return string(key)
}

func newFleet(r *rand.Rand, c fleetConfig) *fleet {
	f := &fleet{prompts: map[string][][]int32{}, sent: map[string][][]int32{}, repeats: map[string]int{}}
	skew := time.Duration((2*r.Float64() - 1) * float64(c.skew))
	var file []int32
	for n := range 2 + r.IntN(6) {
		id := fmt.Sprintf("r%d", n)
		head := []int32{int32(1000 + n), 1, 2, 3}
		if file != nil && r.Float64() < c.shared {
			head = file
		}
		file = head
		head = append(slices.Clone(head), make([]int32, r.IntN(2*chunkLen))...)
		asked, history := slices.Clone(head), slices.Clone(head) // as the server renders it; as the engine got it
		at := clock.Add(time.Duration(r.IntN(20)) * time.Second)
		rollout := Rollout{ID: id}
		if c.named {
			own := head[0]
			rollout.Foreign = func(head func(int) []int32) bool { return head(1)[0] != own }
		}
		for range 1 + r.IntN(3) {
			s := Send{From: at, PromptTokens: 0}
			user := []int32{500, int32(500 + r.IntN(2))}
			asked, history = append(asked, user...), append(history, user...)
			for range 1 + r.IntN(4) {
				if r.Float64() < c.compacted {
					s.Summaries = 1
					asked = append(slices.Clone(head[:4]), 900, int32(r.IntN(3)))
					history = slices.Clone(asked)
				}
				sent := slices.Clone(asked)
				given := slices.Clone(asked)
				if r.Float64() < c.spliced {
					given = slices.Clone(history)
				}
				answers := 1
				if r.Float64() < c.twice {
					answers++
					f.repeats[repeatOf(id, given)]++
				}
				var output []int32
				var logprobs []float32
				for range answers {
					output = c.output(r)
					logprobs = c.engine(r, given, output)
					call := &Call{
						Began: at.Add(skew), Ended: at.Add(skew + time.Second), Status: 200, Prompt: given, Output: output, Logprobs: logprobs,
						Finish: "stop", OutputTokens: int32(len(output)), Version: fmt.Sprint(r.IntN(2)),
					}
					if !slices.Equal(given, sent) {
						call.Asked = sent
					}
					if r.Float64() < c.dropped {
						f.lost = append(f.lost, call)
					} else {
						f.seen = append(f.seen, call)
					}
					at = at.Add(time.Duration(1+r.IntN(2000)) * time.Millisecond)
				}
				f.prompts[id], f.sent[id] = append(f.prompts[id], given), append(f.sent[id], sent)
				s.Calls = append(s.Calls, Sampled{output, logprobs})
				s.PromptTokens += int64(len(given))
				said := slices.Clone(output)
				if float64(output[0]%10)/10 < c.rewritten { // the rendering is a function of the output
					said = said[1:]
				}
				tool := []int32{600, int32(r.IntN(2))}
				asked = append(append(asked, said...), tool...)
				history = append(append(slices.Clone(given), output...), tool...)
			}
			at = at.Add(2 * time.Second)
			s.To = at
			if r.Float64() < c.uncounted {
				s.PromptTokens = -1
			}
			rollout.Sends = append(rollout.Sends, s)
		}
		f.rollouts = append(f.rollouts, rollout)
	}
	r.Shuffle(len(f.seen), func(a, b int) { f.seen[a], f.seen[b] = f.seen[b], f.seen[a] })
	return f
}
