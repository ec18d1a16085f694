package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// A KeyID identifies a sample key in 20 bytes, so that millions of keys fit into memory. Most keys
// consist of 16 bytes in hexadecimal, a hyphen and a decimal index. The KeyID of such a key
// contains these 16 bytes, followed by the index as a big-endian number. The KeyID of any other key
// contains the first 16 bytes of the key's SHA-256, followed by the largest possible index.
type KeyID [20]byte

// IDOf returns the KeyID of a key.
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

// Compare compares two ids byte by byte. It returns -1, 0 or 1.
func (id KeyID) Compare(other KeyID) int { return bytes.Compare(id[:], other[:]) }

// A keySet contains the keys of samples that are done or in flight. The field log contains the keys
// that were in the commit log at Create. The field added contains the keys that this process has
// added.
type keySet struct {
	log   *Ledger
	added map[KeyID]struct{}
}

func (s *keySet) has(key string) bool {
	id := IDOf(key)
	if _, ok := s.added[id]; ok {
		return true
	}
	e, ok := s.log.find(id)
	return ok && e.done()
}

func (s *keySet) add(key string)    { s.added[IDOf(key)] = struct{}{} }
func (s *keySet) remove(key string) { delete(s.added, IDOf(key)) }
