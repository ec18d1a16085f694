package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// An entry ends with its checksum: the SHA-256, in lower-case hex, of all bytes before the comma. It
// covers every byte and is checked without decoding.
const (
	sumBegin = `,"sha256":"`
	sumEnd   = "\"}\n"
	sumLen   = len(sumBegin) + 2*sha256.Size + len(sumEnd)
)

// encodeCommit returns the bytes of an entry, and sets c.SHA256.
func encodeCommit(c *Commit) ([]byte, error) {
	c.SHA256 = ""
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	body = body[:len(body)-1] // the brace
	sum := sha256.Sum256(body)
	c.SHA256 = hex.EncodeToString(sum[:])
	return fmt.Appendf(body, "%s%s%s", sumBegin, c.SHA256, sumEnd), nil
}

// checkSum compares an entry with the checksum at its end. summed reports whether there is a checksum.
func checkSum(body []byte) (summed bool, err error) {
	at := len(body) - sumLen
	if at < 0 || !bytes.HasPrefix(body[at:], []byte(sumBegin)) || !bytes.HasSuffix(body, []byte(sumEnd)) {
		return false, nil
	}
	sum := sha256.Sum256(body[:at])
	says := body[at+len(sumBegin) : len(body)-len(sumEnd)]
	if want := hex.EncodeToString(sum[:]); want != string(says) {
		return true, fmt.Errorf("wrong checksum: the entry has sha256 %s, want %s", says, want)
	}
	return true, nil
}

// readCommit reads one entry. Errors are *CorruptError, or wrap ErrNewer.
func readCommit(fsys FS, dir, name string) (Commit, error) {
	path := commitsDir + "/" + name
	corrupt := func(err error) error { return &CorruptError{Path: path, Row: -1, Err: err} }
	f, err := fsys.Open(filepath.Join(dir, commitsDir, name))
	if err != nil {
		return Commit{}, corrupt(err)
	}
	defer func() { _ = f.Close() }() // read-only
	body, err := readAll(f)
	if err != nil {
		return Commit{}, corrupt(err)
	}
	c, err := decodeCommit(body)
	if errors.Is(err, ErrNewer) {
		return Commit{}, fmt.Errorf("%s: %w", path, err)
	}
	if err == nil {
		err = c.check(name)
	}
	if err != nil {
		return Commit{}, corrupt(err)
	}
	return c, nil
}

// decodeCommit is the inverse of encodeCommit. It also reads earlier versions. An error wraps ErrNewer
// if a newer version of the program wrote the entry.
func decodeCommit(body []byte) (c Commit, err error) {
	// Check the checksum first, for all versions: a damaged entry must not look like a newer one or
	// like version 1, which has no checksum.
	summed, err := checkSum(body)
	if err != nil {
		return c, err
	}
	rest, groups, samples, ok := cutSamples(body)
	if ok {
		body = rest
	}
	// Then check the version: this program cannot interpret a newer entry. There are many entries,
	// so only one that does not decode is decoded twice.
	err = json.Unmarshal(body, &c)
	if err == nil && ok {
		c.Groups, c.Samples = groups, samples
	} else if err == nil {
		err = c.markUnknown(body)
	}
	if err != nil {
		var version struct {
			Version       int             `json:"version"`
			SchemaVersion int             `json:"schema_version"`
			Replaces      json.RawMessage `json:"replaces"`
		}
		if json.Unmarshal(body, &version) != nil {
			return c, err
		}
		c.Version, c.SchemaVersion = version.Version, version.SchemaVersion
		if len(version.Replaces) > 0 {
			c.Replaces = []SeqRange{}
		}
	}
	switch {
	case c.Version > MergeVersion || c.SchemaVersion > SchemaVersion:
		return c, fmt.Errorf("commit version %d, schema version %d: this program reads versions up to %d and %d; upgrade rollout: %w",
			c.Version, c.SchemaVersion, MergeVersion, SchemaVersion, ErrNewer)
	case c.Version > 1 && !summed:
		return c, errors.New("the entry has no checksum at its end")
	case c.Version == 1 && summed:
		return c, errors.New("an entry of version 1 must not have a checksum")
	case c.Replaces != nil && c.Version != MergeVersion:
		return c, fmt.Errorf("this program cannot read an entry that replaces others; upgrade rollout: %w", ErrNewer)
	case err != nil:
		return c, err
	case c.Version < 3 && c.grouped():
		return c, fmt.Errorf("an entry of version %d must not have groups", c.Version)
	case c.Version > 1:
		return c, nil
	}
	// Version 1 has no checksum, so unknown members can be damage.
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return c, dec.Decode(new(Commit))
}

// markUnknown sets Group and Index to -1, not encoding/json's 0, in samples that lack them.
func (c *Commit) markUnknown(body []byte) error {
	var said struct {
		Samples []struct{ Group, Index *int32 } `json:"samples"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return err
	}
	for i := range c.Samples {
		s := &c.Samples[i]
		if said.Samples[i].Group == nil {
			s.Group = -1
		}
		if said.Samples[i].Index == nil {
			s.Index = -1
		}
	}
	return nil
}

func (c *Commit) grouped() bool {
	return c.Groups != nil || slices.ContainsFunc(c.Samples, func(s CommittedSample) bool { return s.Group != -1 || s.Index != -1 })
}

func (c *Commit) check(name string) error {
	if c.Version < 1 || c.SchemaVersion < 1 {
		return fmt.Errorf("commit version %d, schema version %d: both must be ≥ 1", c.Version, c.SchemaVersion)
	}
	if commitName(c.Seq) != name {
		return fmt.Errorf("seq %d does not match the file name", c.Seq)
	}
	if c.Writer < 0 || c.Epoch < 0 {
		return fmt.Errorf("writer %d, epoch %d: both must be ≥ 0", c.Writer, c.Epoch)
	}
	var kinds [1 + KindFailures]int64
	for _, s := range c.Shards {
		if kinds[s.Kind] > 0 {
			return fmt.Errorf("two shards of %s", s.Kind)
		}
		if !filepath.IsLocal(filepath.FromSlash(s.Path)) || filepath.ToSlash(filepath.Dir(s.Path)) != s.Kind.String() {
			return fmt.Errorf("shard path %q is not in %s/", s.Path, s.Kind)
		}
		if s.Rows < 1 {
			return fmt.Errorf("shard %s has %d rows", s.Path, s.Rows)
		}
		kinds[s.Kind] = s.Rows
	}
	var rows, failures int64
	for _, s := range c.Samples {
		if s.Key == "" || s.Rows < 0 || s.Failures < 0 {
			return fmt.Errorf("sample %q has %d rows and %d failures", s.Key, s.Rows, s.Failures)
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

// checkGroups checks the groups of an entry. Entries before version 3 have none.
func (c *Commit) checkGroups() error {
	if c.Version < 3 {
		return nil
	}
	next := int32(0) // number of groups that have begun
	for _, s := range c.Samples {
		if s.Group < 0 || s.Group > next || int(s.Group) >= len(c.Groups) {
			return fmt.Errorf("sample %q has group index %d after %d of %d groups", s.Key, s.Group, next, len(c.Groups))
		}
		if size := c.Groups[s.Group].Size; s.Index < 0 || s.Index >= size {
			return fmt.Errorf("sample %q: index %d is out of range for a group of %d", s.Key, s.Index, size)
		}
		next = max(next, s.Group+1)
	}
	if int(next) != len(c.Groups) {
		return fmt.Errorf("%d groups, but the samples belong to %d", len(c.Groups), next)
	}
	return nil
}

// A sequence checks that the entries of a log fit together.
type sequence struct {
	runID  string // empty: the run of the first entry
	epochs map[int]int64
}

// add adds the next entry. It returns an error if the entry does not fit the earlier ones.
func (s *sequence) add(c *Commit) error {
	if s.runID == "" {
		s.runID = c.RunID
	}
	if c.RunID != s.runID {
		return fmt.Errorf("the entry belongs to run %q, but the log to run %q", c.RunID, s.runID)
	}
	if c.IsMerge() {
		return nil // a merge is not made by a writer
	}
	if last := s.epochs[c.Writer]; c.Epoch < last {
		return fmt.Errorf("writer %d: epoch %d after epoch %d: another process had taken over", c.Writer, c.Epoch, last)
	}
	if c.Epoch > 0 {
		if s.epochs == nil {
			s.epochs = map[int]int64{}
		}
		s.epochs[c.Writer] = c.Epoch
	}
	return nil
}
