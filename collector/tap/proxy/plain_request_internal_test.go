package proxy

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap"
)

func plainRequest(d dialect, path string, body []byte, c *tap.Call) {
	m := plainObject(body)
	sampling := m
	if (d == dialect(sglang{})) {
		sampling = plainObject(m["sampling_params"])
		foreign := false
		for _, key := range []string{"input_embeds", "image_data", "video_data", "audio_data", "session_params", "positional_embed_overrides"} {
			foreign = foreign || !plainNull(m[key])
		}
		if ids, ok := plainIDs(m["input_ids"]); ok && len(ids) > 0 && !foreign {
			c.Prompt = ids
		}
	} else if path == completionPath {
		if ids, ok := plainIDs(m["prompt"]); ok && len(ids) > 0 {
			c.Prompt = ids
		}
	}
	keys := map[string]*names{"/generate": &sglangNames, chatPath: &chatNames, completionPath: &completionNames}[path]
	for i, to := range []**float64{&c.Sampling.Temperature, &c.Sampling.TopP, &c.Sampling.MinP} {
		if v, err := strconv.ParseFloat(string(sampling[keys[temperature+i]]), 64); err == nil {
			*to = &v
		}
	}
	for i, to := range []**int64{&c.Sampling.TopK, &c.Sampling.MaxNewTokens, &c.Sampling.Seed} {
		*to = plainWhole(string(sampling[keys[topK+i]]))
	}
	c.Sampling.Stop = plainTexts(sampling[keys[stop]])
	c.Sampling.StopIDs, _ = plainIDs(sampling[keys[stopIDs]])
}

func plainTexts(text []byte) (all []string) {
	one, list := new(string), []*string{}
	if json.Unmarshal(text, &one) == nil {
		list = []*string{one}
	} else if json.Unmarshal(text, &list) != nil {
		return nil
	}
	if slices.Contains(list, nil) {
		return nil
	}
	for _, s := range list {
		all = append(all, *s)
	}
	return all
}

// plainWhole parses a whole number, also with a fraction or an exponent if that is exact.
func plainWhole(text string) *int64 {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &v
	}
	v, err := strconv.ParseFloat(text, 64)
	if whole := math.Trunc(v); err != nil || whole != v || math.Abs(v) > 1<<53 {
		return nil
	}
	return new(int64(v))
}
