package proxy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSDKsSeeTheSameLargeArguments makes calls in sessions whose answers have tool calls with 1 to 8 MB
// of random arguments, in pieces of any size and in writes that end anywhere. A second call sends the
// arguments back. ROLLOUT_SEED repeats an earlier test.
func TestSDKsSeeTheSameLargeArguments(t *testing.T) {
	t.Parallel()
	sdkClients(t)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("ROLLOUT_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sizes := []int{1 << 20, 8 << 20, (1 + r.IntN(8)) << 20, 1000, 100_000}
	if testing.Short() {
		sizes = sizes[2:]
	}
	var answers []sdkAnswer
	var calls []sdkCall
	for i, size := range sizes {
		a := randomAnswer(r, fmt.Sprintf("large %d", i), size)
		answers = append(answers, a)
		var sent []any
		for k, arguments := range a.calls {
			sent = append(sent, map[string]any{
				"id": fmt.Sprintf("call_%d", k), "type": "function", "function": map[string]any{"name": "weather", "arguments": arguments},
			})
		}
		user := map[string]any{"role": "user", "content": a.name}
		after := []any{user, map[string]any{"role": "assistant", "content": a.text, "tool_calls": sent}, user}
		for how, body := range map[string]map[string]any{
			"whole":         {"messages": []any{user}},
			"stream":        {"messages": []any{user}, "stream": true},
			"whole, after":  {"messages": after},
			"stream, after": {"messages": after, "stream": true, "stream_options": map[string]any{"include_usage": true}},
		} {
			body["model"] = "policy"
			calls = append(calls, sdkCall{Name: a.name + ", " + how, Body: body})
		}
	}
	sameInSessions(t, answers, calls)
}

// randomAnswer returns an answer with about size bytes of arguments.
func randomAnswer(r *rand.Rand, name string, size int) sdkAnswer {
	a := sdkAnswer{name: name, finish: "tool_calls", seed: r.Uint64(), piece: 1 + size/2000 + r.IntN(1+size/100)}
	if r.IntN(2) == 0 {
		a.text, a.reasoning = randomText(r, 200), randomText(r, 200)
	}
	n := 1 + r.IntN(3)
	for range n {
		var b strings.Builder
		b.WriteByte('{')
		for i := 0; b.Len() < size/n; i++ {
			if i > 0 {
				b.WriteString([]string{",", ", ", " ,\n\t"}[r.IntN(3)])
			}
			b.WriteString(quoted(strconv.Itoa(i)+randomText(r, 5)) + []string{":", ": "}[r.IntN(2)])
			randomValue(r, &b, size/n/8)
		}
		b.WriteByte('}')
		a.calls = append(a.calls, b.String())
	}
	return a
}

// randomValue writes a JSON value of at most about size bytes. Some values are deep.
func randomValue(r *rand.Rand, b *strings.Builder, size int) {
	switch r.IntN(5) {
	case 0:
		b.WriteString([]string{"null", "true", "-0.0", "1e400", "12345678901234567890", "1.0", `"\u00fc\ud83d\ude00\/"`, "{}", "[ ]"}[r.IntN(9)])
	case 1:
		depth := r.IntN(1 + size/2)
		b.WriteString(strings.Repeat("[", depth) + strings.Repeat("]", depth))
	case 2:
		depth := r.IntN(1 + size/8)
		b.WriteString(strings.Repeat(`{"a": `, depth) + "1" + strings.Repeat("}", depth))
	default:
		b.WriteString(quoted(randomText(r, size)))
	}
}

// randomText returns a text of at most about size bytes.
func randomText(r *rand.Rand, size int) string {
	parts := strings.Split(`a|note |ü|日本|👩‍👩‍👧|é|"|\|\n|\u0000|/|<|data: [DONE]|"token_ids":[1]|{"|`, "|")
	parts = append(parts, "\n\n", "\r\n", "\x00", "\x7f", "\u2028", "\ufeff", "\ufffd", "|")
	var b strings.Builder
	for end := r.IntN(1 + size); b.Len() < end; {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// sumOf returns the answer that the chunks of a stream make together.
func sumOf(chunks []json.RawMessage) string {
	var sum struct {
		Text, Reasoning strings.Builder
		Calls           map[int]*[4]string
		Finish          string
		Usage           json.RawMessage
	}
	sum.Calls = map[int]*[4]string{}
	for _, raw := range chunks {
		var chunk struct {
			Usage   json.RawMessage
			Choices []struct {
				Finish string `json:"finish_reason"`
				Delta  struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
					Calls     []struct {
						Index    int
						ID, Type string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
		}
		if json.Unmarshal(raw, &chunk) != nil {
			return string(raw) // never equal
		}
		if chunk.Usage != nil {
			sum.Usage = chunk.Usage
		}
		for _, choice := range chunk.Choices {
			sum.Finish += choice.Finish
			sum.Text.WriteString(choice.Delta.Content)
			sum.Reasoning.WriteString(choice.Delta.Reasoning)
			for _, c := range choice.Delta.Calls {
				if sum.Calls[c.Index] == nil {
					sum.Calls[c.Index] = &[4]string{}
				}
				for i, part := range []string{c.ID, c.Type, c.Function.Name, c.Function.Arguments} {
					sum.Calls[c.Index][i] += part
				}
			}
		}
	}
	return fmt.Sprintf("%q %q %v %s %s", sum.Text.String(), sum.Reasoning.String(), asJSON(sum.Calls), sum.Finish, sum.Usage)
}
