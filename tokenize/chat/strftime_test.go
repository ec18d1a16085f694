package chat_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestStrftimeAgainstPython formats random times with random formats, including every directive
// with every flag. The result equals Python's, or an error names the format.
func TestStrftimeAgainstPython(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: skipping the comparison with Python")
	}
	r := source(t)
	const letters = "aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ%+é"
	type ask struct {
		Unix      int64  // naive
		Format    string // every directive, then random texts
		supported bool
	}
	var asks []ask
	from := time.Date(1995, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	when := func() int64 { return from + r.Int64N(60*366*24*3600) }
	for _, c := range letters {
		for _, flag := range []string{"", "-", "_", "0", "^", "#", "E", "O", "5"} {
			supported := flag == "" && strings.ContainsRune("aAbBcdDefFhHIjmMprRSTxXyY%", c) || flag == "-" && strings.ContainsRune("deHIjmMSy", c)
			for range 4 {
				asks = append(asks, ask{when(), "<%" + flag + string(c) + ">", supported})
			}
		}
	}
	for range 3000 {
		var f strings.Builder
		for range r.IntN(9) {
			f.WriteString(pick(r, "%Y", "%m", "%-d", "%d", "%B", "%b", "%H", "%I", "%p", "%M", "%S", "%j", "%A", "%y", "%-I", "%F", "%T", "%e", "%-e", "%f", "%c", "%%", "-", ", ", "é", "{", "x"))
		}
		asks = append(asks, ask{when(), f.String(), true})
	}
	in, err := json.Marshal(asks)
	if err != nil {
		t.Fatal(err)
	}
	const script = `import datetime, json, sys
epoch = datetime.datetime(1970, 1, 1)
json.dump([(epoch + datetime.timedelta(seconds=a["Unix"])).strftime(a["Format"]) for a in json.load(sys.stdin)], sys.stdout)`
	cmd := exec.Command(interpreter(), "-X", "utf8", "-c", script)
	cmd.Env = []string{"LC_ALL=C", "TZ=Asia/Kathmandu"} // a naive time has no zone
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for i, a := range asks {
		got, err := chat.Strftime(time.Unix(a.Unix, 0).UTC(), a.Format)
		switch {
		case !a.supported && errors.Is(err, chat.ErrUnsupported):
		case !a.supported || err != nil || got != want[i]:
			t.Errorf("%q at %d: %q, %v; Python prints %q", a.Format, a.Unix, got, err, want[i])
		}
	}
}

// TestClockUnit checks that the output changes only at multiples of the unit.
func TestClockUnit(t *testing.T) {
	t.Parallel()
	r := source(t)
	for _, c := range "aAbBcCdDeFfGhHIjklmMnpPrRStTuUVwWxXyYzZ%" {
		for _, format := range []string{"%" + string(c), "%-" + string(c), "on %" + string(c)} {
			unit := chat.ClockUnit(format)
			for range 300 {
				at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.Int64N(int64(366 * 24 * time.Hour))))
				begin := at.Truncate(unit)
				first, err := chat.Strftime(begin, format)
				if err != nil {
					break
				}
				if now, _ := chat.Strftime(at, format); now != first {
					t.Fatalf("%s prints %q at %v and %q at %v, within one unit of %v", format, now, at, first, begin, unit)
				}
			}
		}
	}
}
