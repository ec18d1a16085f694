package report

import (
	"maps"
	"math"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	row := func(least, greatest int32) *sink.StoredRow {
		return &sink.StoredRow{PolicyVersionMin: &least, PolicyVersionMax: &greatest}
	}
	var v versionSums
	v.add(&sink.StoredRow{})
	if got := v.versions(); got != nil || got.shares().Rows != nil {
		t.Errorf("versions() = %+v where none is known", got)
	}
	v.add(row(3, 3))
	v.add(row(3, 3))
	v.add(row(3, 4))
	got := v.versions()
	if got.Unknown != 1 || got.Mixed != 1 || !maps.Equal(got.Newest, map[string]int{"3": 2, "4": 1}) {
		t.Errorf("versions() = %+v, want 1 unknown, 1 mixed, 2 of 3 and 1 of 4", got)
	}
	for i := range int32(100) {
		v.add(row(i, i))
	}
	v.add(row(0, math.MaxInt32))
	got = v.versions()
	sum := 0
	for _, n := range got.Newest {
		sum += n
	}
	if len(got.Newest) > maxVersions || sum != 104 {
		t.Errorf("versions() = %+v: want at most %d entries of 104 rows", got, maxVersions)
	}
}
