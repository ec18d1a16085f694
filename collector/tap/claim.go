package tap

import (
	"bytes"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// claim assigns the resolved calls to the rollout and returns one Match for each of the rollout's
// calls.
func (j *join) claim() []Match {
	out := make([]Match, len(j.calls))
	for k := range j.calls {
		c := &j.calls[k]
		if c.known == nil {
			out[k].Refusal = c.refused
			j.x.refused[c.refused]++
			continue
		}
		who := owner{j.r.ID, k}
		mine := j.x.free(c, who)
		if mine == nil {
			out[k].Refusal = RefusedTaken
			j.x.refused[RefusedTaken]++
			continue
		}
		j.x.claim(mine, who)
		out[k].Call = c.found(mine)
	}
	for k := range out { // a separate loop, because all calls must be claimed first
		out[k].Unshown = j.unshown(k, out[k].Call != nil)
	}
	return out
}

// free returns a sighting of c that has the chosen prompt. It prefers a sighting that already
// belongs to the owner who over an unclaimed sighting. It returns nil if all sightings belong to
// other owners.
func (x *Index) free(c *joining, who owner) (one *sighting) {
	for _, e := range c.like {
		if e.digest != c.known.digest {
			continue
		}
		if e.owner == who {
			return e
		}
		if e.owner == (owner{}) && one == nil {
			one = e
		}
	}
	return one
}

func (x *Index) claim(e *sighting, who owner) {
	if e.owner == who {
		return
	}
	e.owner = who
	x.stats.Claimed++
	x.joined[e.digest]++
	x.claimed = append(x.claimed, e)
}

// found returns the call. Several sightings can have the same prompt, output and log-probabilities.
// If these sightings differ in another field, that field of the call is set to unknown.
func (c *joining) found(mine *sighting) *Call {
	call := mine.call
	call.Prompt = c.known.prompt.append(nil)
	if mine.asked.known() {
		call.Asked = mine.asked.append(nil)
	}
	s := &call.Sampling
	for _, e := range c.like {
		if e == mine || e.digest != mine.digest {
			continue
		}
		o := &e.call
		if call.Asked == nil && e.asked.known() {
			call.Asked = e.asked.append(nil)
		}
		if call.Finish != o.Finish || call.Matched != o.Matched {
			call.Finish, call.Matched = "", -1
		}
		if call.Version != o.Version {
			call.Version = ""
		}
		if !slices.Equal(call.Versions, o.Versions) {
			call.Versions = []tokenize.VersionSpan{}
		}
		if call.Experts.Shape != o.Experts.Shape || !bytes.Equal(call.Experts.IDs, o.Experts.IDs) ||
			!slices.Equal(call.SamplingMask, o.SamplingMask) || !slices.Equal(call.MaskLengths, o.MaskLengths) {
			call.dropInside()
		}
		if call.Cached != o.Cached {
			call.Cached = -1
		}
		agree(&s.Temperature, o.Sampling.Temperature)
		agree(&s.TopP, o.Sampling.TopP)
		agree(&s.MinP, o.Sampling.MinP)
		agree(&s.TopK, o.Sampling.TopK)
		agree(&s.MaxNewTokens, o.Sampling.MaxNewTokens)
		agree(&s.Seed, o.Sampling.Seed)
	}
	return &call
}

// agree sets *p to nil, which means unknown, unless o points to the same value.
func agree[T comparable](p **T, o *T) {
	if *p != nil && (o == nil || *o != **p) {
		*p = nil
	}
}
