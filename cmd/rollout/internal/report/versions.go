package report

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/sink"
)

// Versions counts rows by the policy versions that sampled their tokens.
type Versions struct {
	// Unknown counts the rows with a sampled token whose version is unknown. Mixed counts the rows
	// with tokens from several versions.
	Unknown int `json:"unknown,omitempty"`
	Mixed   int `json:"mixed,omitempty"`
	// Newest counts the rows by their newest version, excluding the rows counted in Unknown. A key
	// is one version or, if there are many versions, a range such as 100-149.
	Newest map[string]int `json:"newest,omitempty"`
}

// maxVersions is the maximum number of entries in Versions.Newest.
const maxVersions = 12

type versionSums struct {
	unknown, mixed int
	newest         map[int32]int
}

func (v *versionSums) add(row *sink.StoredRow) {
	if row.PolicyVersionMin == nil || row.PolicyVersionMax == nil {
		v.unknown++
		return
	}
	if *row.PolicyVersionMin != *row.PolicyVersionMax {
		v.mixed++
	}
	if v.newest == nil {
		v.newest = map[int32]int{}
	}
	v.newest[*row.PolicyVersionMax]++
}

// versions returns the counts, or nil if no row has a known version.
func (v *versionSums) versions() *Versions {
	if len(v.newest) == 0 {
		return nil
	}
	all := slices.Sorted(maps.Keys(v.newest))
	step := int64(1)
	if len(all) > maxVersions {
		span := int64(all[len(all)-1]) - int64(all[0]) + 1
		for step = 5; (span+step-1)/step >= maxVersions; step *= 2 {
		}
	}
	out := &Versions{Unknown: v.unknown, Mixed: v.mixed, Newest: map[string]int{}}
	for _, version := range all {
		name := strconv.Itoa(int(version))
		if step > 1 {
			from := int64(version) / step * step
			name = strconv.FormatInt(from, 10) + "-" + strconv.FormatInt(min(from+step-1, math.MaxInt32), 10)
		}
		out.Newest[name] += v.newest[version]
	}
	return out
}
