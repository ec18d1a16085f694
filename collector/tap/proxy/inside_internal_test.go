package proxy

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// npyFile is numpy.save of an array [2, 1, 2] of uint8: 1, 2, 3, 4.
var npyFile = fmt.Sprintf("\x93NUMPY\x01\x00\x76\x00%-117s\n\x01\x02\x03\x04", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 2), }")

func FuzzDecodeExperts(f *testing.F) {
	f.Add([]byte(npyFile))
	f.Add([]byte("\x00\x00\x00\x00\x7f\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		shape := tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 128}
		e := tokenize.Experts{Shape: shape}
		if err := decodeExperts(&e, base64.StdEncoding.EncodeToString(raw)); err == nil {
			if len(e.IDs)%shape.TokenBytes() != 0 {
				t.Errorf("%d bytes are not whole tokens", len(e.IDs))
			}
			for _, id := range e.IDs {
				if int8(id) < -1 { //nolint:gosec // -1 is stored as 255
					t.Errorf("expert %d", int8(id)) //nolint:gosec // as above
				}
			}
		}
	})
}

func TestDecodeExperts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, raw, want string
		shape           tokenize.ExpertShape
	}{
		{"npy", npyFile, "\x01\x02\x03\x04", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 128}},
		{"wide", npyFile, "\x01\x00\x02\x00\x03\x00\x04\x00", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 129}},
		{"npy of another shape", npyFile, "", tokenize.ExpertShape{Layers: 2, TopK: 1, Experts: 128}},
		{"too few experts", npyFile, "", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 4}},
		{"int32", "\x05\x00\x00\x00\xff\xff\xff\xff", "\x05\xff", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 128}},
		{"half a token", "\x05\x00\x00\x00", "", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 128}},
		{"a large id", "\x05\x01\x00\x00\x00\x00\x00\x00", "", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 128}},
		{"too short", npyFile[:130], "", tokenize.ExpertShape{Layers: 1, TopK: 2, Experts: 128}},
	} {
		e := tokenize.Experts{Shape: test.shape}
		err := decodeExperts(&e, base64.StdEncoding.EncodeToString([]byte(test.raw)))
		if (err == nil) != (test.want != "") || err == nil && string(e.IDs) != test.want {
			t.Errorf("%s: % x, %v, want % x", test.name, e.IDs, err, test.want)
		}
	}
}
