package lettasim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Latency is a distribution of durations. It is constant if only Low is set, and uniform from Low
// to High if both are set. If Sigma is positive, it is log-normal with the median Low. A nonzero
// High is then the maximum.
type Latency struct {
	Low, High time.Duration
	Sigma     float64
}

// ParseLatency parses "200ms", "50ms..2s", "200ms~0.5" or "200ms~0.5..10s". The number after ~ is
// Sigma.
func ParseLatency(s string) (Latency, error) {
	var l Latency
	text, high, ranged := strings.Cut(s, "..")
	low, sigma, skewed := strings.Cut(text, "~")
	var err error
	if l.Low, err = time.ParseDuration(low); err != nil {
		return Latency{}, fmt.Errorf("lettasim: latency %q: want 200ms, 50ms..2s or 200ms~0.5", s)
	}
	if ranged {
		if l.High, err = time.ParseDuration(high); err != nil {
			return Latency{}, fmt.Errorf("lettasim: latency %q: upper bound %q: want a duration", s, high)
		}
	}
	if skewed {
		if l.Sigma, err = strconv.ParseFloat(sigma, 64); err != nil {
			return Latency{}, fmt.Errorf("lettasim: latency %q: sigma %q: want a number", s, sigma)
		}
	}
	return l, l.validate()
}

func (l Latency) validate() error {
	if l.Low < 0 || l.Sigma < 0 || math.IsNaN(l.Sigma) || l.Sigma > 10 || l.High != 0 && l.High < l.Low {
		return fmt.Errorf("lettasim: latency %v..%v sigma %g: want 0 ≤ low ≤ high and 0 ≤ sigma ≤ 10", l.Low, l.High, l.Sigma)
	}
	return nil
}

func (l Latency) at(r *rng) time.Duration {
	switch {
	case l.Sigma > 0:
		d := time.Duration(math.Min(float64(l.Low)*math.Exp(l.Sigma*r.normal()), float64(time.Hour)))
		if l.High > 0 {
			d = min(d, l.High)
		}
		return d
	case l.High > l.Low:
		return l.Low + time.Duration(r.float()*float64(l.High-l.Low))
	}
	return l.Low
}

// The method due returns the time at which a send ends if it arrives now and takes the duration d.
// If the capacity is limited and used up, the send starts when another send ends. The caller holds
// s.mu.
func (s *Server) due(now time.Time, d time.Duration) time.Time {
	if len(s.busyUntil) == 0 {
		return now.Add(d)
	}
	first := 0
	for i, t := range s.busyUntil {
		if t.Before(s.busyUntil[first]) {
			first = i
		}
	}
	if s.busyUntil[first].After(now) {
		now = s.busyUntil[first]
	}
	s.busyUntil[first] = now.Add(d)
	return s.busyUntil[first]
}
