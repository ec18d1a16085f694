package enginesim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The faults of the script harness. Each is a parameter of the marker whose value is the number of
// the answer, from 1.
const (
	faultCut    = "cut"    // the answer is cut off: a stream after some events, or in the middle of the body
	faultDrop   = "drop"   // the connection is dropped before any byte of the answer
	faultError  = "err"    // status 500
	faultBusy   = "busy"   // status 429 with Retry-After: 1
	faultLength = "length" // the output ends at the token limit, without a tool call
	faultCtx    = "ctx"    // status 400, in the engine's words for a prompt that is too long
	faultSlow   = "slow"   // the answer is delayed by the parameter ms, default 3000
)

var faultNames = [...]string{faultCut, faultDrop, faultError, faultBusy, faultLength, faultCtx, faultSlow}

// A faultLog counts the faults that have happened, because each happens only once (or as often as
// the parameter times says). The conversations of equal markers share the count.
type faultLog struct {
	mu   sync.Mutex
	done map[string]int // keyed by marker and fault
}

// take returns the fault of the turn's answer, or "". Auxiliary requests have no faults.
func (f *faultLog) take(t *turn) string {
	if t.auxiliary {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range faultNames {
		if t.int(name, 0) != t.Step+1 {
			continue
		}
		if key := t.marker + name; f.done[key] < max(1, t.int("times", 1)) {
			f.done[key]++
			return name
		}
	}
	return ""
}

// refused answers with the fault if it is a status, and reports whether it is.
func (e *Engine) refused(w http.ResponseWriter, g *generation, t *turn, limit int64) bool {
	switch g.call.Fault {
	case faultDrop:
		e.fault(w, g, 0, "")
	case faultError:
		e.fault(w, g, http.StatusInternalServerError, "internal server error, the script's fault: "+t.marker)
	case faultBusy:
		w.Header().Set("Retry-After", "1")
		e.fault(w, g, http.StatusTooManyRequests, "the script's fault: too many requests")
	case faultCtx:
		e.fault(w, g, http.StatusBadRequest, e.cfg.Dialect.tooLong(e.cfg.MaxModelLen+1, e.cfg.MaxModelLen, limit))
	default:
		return false
	}
	return true
}

// after returns how the reply changes with the fault.
func (t *turn) after(fault string, r reply) reply {
	switch fault {
	case faultLength:
		return reply{text: "Counting for ever: one, two, three, %word%, ", repeat: 4, length: true}
	case faultSlow:
		r.delayMS = t.int("ms", int(3*time.Second/time.Millisecond))
	}
	return r
}

// cutAfter returns how many events a stream has before it is cut off: the parameter after, or 3.
func (t *turn) cutAfter() int { return max(1, t.int("after", 3)) }

// options are the parameters that the script harness knows, except faults.
var options = strings.Fields("seed step of calls parallel subagent think long unicode compact numbers answer remember recall after ms times")

// unknown returns the message about a parameter that the script does not know, or "".
func (t *turn) unknown() string {
	for _, name := range slices.Sorted(maps.Keys(t.Params)) {
		if !slices.Contains(options, name) && !slices.Contains(faultNames[:], name) {
			return fmt.Sprintf("unknown option %q of the script harness (want one of %s, %s)",
				name, strings.Join(options, ", "), strings.Join(faultNames[:], ", "))
		}
	}
	return ""
}

// params returns the parameters in a marker. A parameter without a value has the value "".
func params(text string) map[string]string {
	all := map[string]string{}
	for _, m := range markerParam.FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// Marker returns the text that selects the script harness in a prompt, such as
// "[script:harness seed=7 parallel cut=2]". Each option is NAME or NAME=VALUE.
func Marker(seed int, options ...string) string {
	words := append([]string{"[script:" + harnessScript, "seed=" + strconv.Itoa(seed)}, options...)
	return strings.Join(words, " ") + "]"
}
