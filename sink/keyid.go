package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/sink/mapped"
)

// A KeyID stands for a sample key in 20 bytes, so that millions of keys can be kept without
// a text for each: the group's 16 bytes and the index, big endian, where the key is such a
// pair in hexadecimal and decimal; else the beginning of its SHA-256 and the largest index.
type KeyID [20]byte

// IDOf is the KeyID of a key.
func IDOf(key string) (id KeyID) {
	group, index, _ := strings.Cut(key, "-")
	n, err := strconv.ParseUint(index, 10, 32)
	if err == nil && len(group) == hex.EncodedLen(16) && n < math.MaxUint32 && (index[0] != '0' || index == "0") && group == strings.ToLower(group) {
		if _, err := hex.Decode(id[:16], []byte(group)); err == nil {
			binary.BigEndian.PutUint32(id[16:], uint32(n))
			return id
		}
	}
	sum := sha256.Sum256([]byte(key))
	copy(id[:16], sum[:])
	binary.BigEndian.PutUint32(id[16:], math.MaxUint32)
	return id
}

// Compare orders ids.
func (id KeyID) Compare(other KeyID) int { return bytes.Compare(id[:], other[:]) }

// A keySet holds the keys of the samples that are done or on their way. Those of the log are
// a sorted list, 20 bytes each, which is mapped when it is long; those of this process are in
// a map.
type keySet struct {
	read  []KeyID // off the log, until they are sorted
	log   *mapped.Sorted[KeyID]
	added map[KeyID]struct{}
}

// take adds the samples of a commit that are done.
func (s *keySet) take(c *Commit) {
	s.read = slices.Grow(s.read, len(c.Samples))
	for i := range c.Samples {
		if !c.Samples[i].Failed() {
			s.read = append(s.read, IDOf(c.Samples[i].Key))
		}
	}
}

// sorted must be called after the last commit was taken. dir is the folder of the run.
func (s *keySet) sorted(dir string) {
	slices.SortFunc(s.read, KeyID.Compare)
	s.log, s.read = mapped.New(dir, s.read), nil
	s.added = map[KeyID]struct{}{}
}

func (s *keySet) has(key string) bool {
	id := IDOf(key)
	if _, ok := s.added[id]; ok {
		return true
	}
	_, ok := s.log.Search(func(k *KeyID) int { return k.Compare(id) })
	return ok
}

func (s *keySet) add(key string)    { s.added[IDOf(key)] = struct{}{} }
func (s *keySet) remove(key string) { delete(s.added, IDOf(key)) }
