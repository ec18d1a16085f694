package collector

import "testing"

// The needed number is rounded up, but not for a binary rounding error of the factor.
func TestTailNeed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		factor  float64
		planned int
		want    int
	}{
		{"exact in binary", 1.25, 100, 80},
		{"just above in binary", 1.14, 57, 50},
		{"just below in binary", 1.1, 33, 30},
		{"a million", 1.05, 1_050_000, 1_000_000},
		{"rounded up", 1.3, 100, 77},
		{"less than one too many", 1.05, 8, 8},
		{"one", 1.05, 1, 1},
		{"all but nothing", 1.0000001, 7, 7},
		{"none", 2, 0, 0},
	} {
		if got := (Tail{Kind: TailOversample, Factor: tt.factor}).need(tt.planned); got != tt.want {
			t.Errorf("%s: need(%d) with factor %v = %d, want %d", tt.name, tt.planned, tt.factor, got, tt.want)
		}
	}
}
