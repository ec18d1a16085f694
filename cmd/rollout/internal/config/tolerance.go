package config

import (
	"fmt"
	"strconv"
	"strings"
)

// A Tolerance is how many samples can fail: a count, or a share of all.
type Tolerance struct {
	count   int
	percent float64
	share   bool
}

func (t Tolerance) String() string {
	if t.share {
		return strconv.FormatFloat(t.percent, 'g', -1, 64) + "%"
	}
	return strconv.Itoa(t.count)
}

// parseTolerance parses "5" or "2.5%".
func parseTolerance(text string) (Tolerance, error) {
	if p, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return Tolerance{}, fmt.Errorf("%q is not a share from 0%% to 100%%", text)
		}
		return Tolerance{percent: f, share: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Tolerance{}, fmt.Errorf("%q is neither a number of samples nor a share such as 5%%", text)
	}
	return Tolerance{count: n}, nil
}

// Allowed returns how many of planned samples can fail.
func (t Tolerance) Allowed(planned int) int {
	if t.share {
		return int(t.percent / 100 * float64(planned))
	}
	return t.count
}
