package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// An entry ends with its checksum: the SHA-256 of all bytes before sumBegin, in lower-case hex. The
// checksum covers all other members of the entry and can be verified without decoding the entry.
const (
	sumBegin = `,"sha256":"`
	sumEnd   = "\"}\n"
	sumLen   = len(sumBegin) + 2*sha256.Size + len(sumEnd)
)

// encodeCommit returns the JSON text of an entry and sets c.SHA256.
func encodeCommit(c *Commit) ([]byte, error) {
	c.SHA256 = ""
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	body = body[:len(body)-1] // the closing brace
	sum := sha256.Sum256(body)
	c.SHA256 = hex.EncodeToString(sum[:])
	return fmt.Appendf(body, "%s%s%s", sumBegin, c.SHA256, sumEnd), nil
}

func checkSum(body []byte) error {
	at := len(body) - sumLen
	if at < 0 || !bytes.HasPrefix(body[at:], []byte(sumBegin)) || !bytes.HasSuffix(body, []byte(sumEnd)) {
		return errors.New("the entry has no checksum at its end")
	}
	sum := sha256.Sum256(body[:at])
	says := body[at+len(sumBegin) : len(body)-len(sumEnd)]
	if want := hex.EncodeToString(sum[:]); want != string(says) {
		return fmt.Errorf("wrong checksum: the entry has sha256 %s, want %s", says, want)
	}
	return nil
}

// readCommit reads an entry. It also returns the bytes of the entry. See readError for its errors.
func (p *location) readCommit(seq int64) (c Commit, body []byte, err error) {
	if body, err = p.objects.Get(entryPath(seq)); err == nil {
		c, err = decodeCommit(body)
	}
	if err == nil {
		err = c.check(seq)
	}
	if err != nil {
		return Commit{}, nil, p.readError(entryPath(seq), err)
	}
	return c, body, nil
}

// decodeCommit is the inverse of encodeCommit. The error wraps ErrNewer if a newer version of the
// program wrote the entry.
func decodeCommit(body []byte) (c Commit, err error) {
	// Verify the checksum first, so that a damaged entry does not look like an entry of a newer
	// version.
	if err := checkSum(body); err != nil {
		return c, err
	}
	rest, groups, samples, ok := cutSamples(body)
	if ok {
		body = rest
	}
	// Then decode the whole entry and check its version. If decoding fails, the entry might have a
	// newer version, so decode only the version. It would take too long to decode the version of
	// every entry first.
	err = json.Unmarshal(body, &c)
	if err == nil && ok {
		c.Groups, c.Samples = groups, samples
	}
	if err != nil {
		var version struct {
			Version       int `json:"version"`
			SchemaVersion int `json:"schema_version"`
		}
		if json.Unmarshal(body, &version) != nil {
			return c, err
		}
		c.Version, c.SchemaVersion = version.Version, version.SchemaVersion
	}
	if c.Version > commitVersion || c.SchemaVersion > SchemaVersion {
		return c, fmt.Errorf("%w: commit version %d, schema version %d, but this program reads versions %d and %d; upgrade rollout",
			ErrNewer, c.Version, c.SchemaVersion, commitVersion, SchemaVersion)
	}
	return c, err
}

// check checks the entry with the number seq.
func (c *Commit) check(seq int64) error {
	if c.Version < 1 || c.SchemaVersion < 1 {
		return fmt.Errorf("commit version %d, schema version %d: both must be ≥ 1", c.Version, c.SchemaVersion)
	}
	if c.Seq != seq {
		return fmt.Errorf("seq %d does not match the file name", c.Seq)
	}
	if err := c.checkKind(); err != nil {
		return err
	}
	var kinds [1 + KindScores]int64
	for _, s := range c.Shards {
		if kinds[s.Kind] > 0 {
			return fmt.Errorf("two shards of kind %s", s.Kind)
		}
		if !filepath.IsLocal(filepath.FromSlash(s.Path)) || filepath.ToSlash(filepath.Dir(s.Path)) != s.Kind.String() {
			return fmt.Errorf("shard path %q is not in %s/", s.Path, s.Kind)
		}
		if s.Rows < 1 {
			return fmt.Errorf("shard %s has %d rows: must be ≥ 1", s.Path, s.Rows)
		}
		kinds[s.Kind] = s.Rows
	}
	var rows, failures int64
	for _, s := range c.Samples {
		if s.Key == "" || s.Rows < 0 || s.Failures < 0 {
			return fmt.Errorf("sample %q has %d rows and %d failures: the key must not be empty, and the numbers must be ≥ 0", s.Key, s.Rows, s.Failures)
		}
		rows += int64(s.Rows)
		failures += int64(s.Failures)
	}
	if err := errors.Join(c.checkGroups(), c.checkMerge()); err != nil {
		return err
	}
	if rows != kinds[KindData] || failures != kinds[KindFailures] {
		return fmt.Errorf("the samples have %d rows and %d failures, but the shards have %d and %d", rows, failures, kinds[KindData], kinds[KindFailures])
	}
	return nil
}

func (c *Commit) checkKind() error {
	if c.Claim < 0 || c.Claim >= c.Seq || c.Epoch < 0 {
		return fmt.Errorf("claim %d, epoch %d: both must be ≥ 0, and the claim must be before the entry", c.Claim, c.Epoch)
	}
	switch c.Kind {
	case "":
		return nil
	case kindClaim, kindSealed:
	default:
		return fmt.Errorf("an entry of kind %q: must be %s, %s or empty", c.Kind, kindClaim, kindSealed)
	}
	if len(c.Shards)+len(c.Samples)+len(c.Groups)+len(c.Replaces) > 0 {
		return fmt.Errorf("an entry of kind %q has shards, samples or replaced entries", c.Kind)
	}
	return nil
}

func (c *Commit) checkGroups() error {
	next := int32(0) // number of groups seen so far
	for _, s := range c.Samples {
		if s.Group < 0 || s.Group > next || int(s.Group) >= len(c.Groups) {
			return fmt.Errorf("sample %q has group index %d, but earlier samples use the first %d of %d groups", s.Key, s.Group, next, len(c.Groups))
		}
		if size := c.Groups[s.Group].Size; s.Index < 0 || s.Index >= size {
			return fmt.Errorf("sample %q: index %d is out of range for a group of %d", s.Key, s.Index, size)
		}
		next = max(next, s.Group+1)
	}
	if int(next) != len(c.Groups) {
		return fmt.Errorf("the commit has %d groups, but its samples belong to %d", len(c.Groups), next)
	}
	return nil
}
