package handover

import (
	"archive/zip"
	"bufio"
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/sink"
)

// A slimeWriter writes the file that slime reads with --load-debug-rollout-data: what torch.save makes of
// {"rollout_id": 0, "samples": [Sample.to_dict(), …]}. The file is a ZIP archive with a pickle. The samples
// contain lists of numbers instead of tensors, so the pickle needs few operations, and slime needs no loader.
//
// rollout.to_slime in the Python package makes the same samples: reward is the advantage, because slime itself
// normalizes rewards over the whole file if a sample failed or has several rows. slime must therefore run with
// --disable-rewards-normalization.
//
// The groups are contiguous and in the order of their first rows. The rows of a run are in the order in which
// they were committed. Therefore the samples first go to a temporary file, and End copies them group by group.
type slimeWriter struct {
	w       io.Writer
	rewards Rewards
	left    *Left
	spool   *os.File
	at      int64
	groups  []*slimeGroup
	byID    map[sink.KeyID]*slimeGroup
	buf     []byte
}

type slimeGroup struct{ rows []slimeRow }

// A slimeRow is the place of a row in the temporary file.
type slimeRow struct {
	at             int64
	bytes          int32
	index, segment int32
}

func newSlime(w io.Writer, rewards Rewards, left *Left) (*slimeWriter, error) {
	spool, err := os.CreateTemp("", "rollout-export-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(spool.Name()) // the file exists until it is closed, even if the process is killed
	return &slimeWriter{w: w, rewards: rewards, left: left, spool: spool, byID: map[sink.KeyID]*slimeGroup{}}, nil
}

// Write implements Writer.
func (w *slimeWriter) Write(r *sink.StoredRow) (bool, error) {
	if !w.left.trainable(r) {
		return false, nil
	}
	if r.PromptLength == 0 { // slime would take the first log-probability from another sample
		w.left.Short++
		return false, nil
	}
	w.buf = appendSample(w.buf[:0], r, w.rewards.normalized(r))
	if _, err := w.spool.Write(w.buf); err != nil {
		return false, err
	}
	id := sink.IDOf(r.GroupID)
	g := w.byID[id]
	if g == nil {
		g = &slimeGroup{}
		w.byID[id], w.groups = g, append(w.groups, g)
	}
	g.rows = append(g.rows, slimeRow{w.at, int32(len(w.buf)), r.SampleIndex, r.SegmentIndex})
	w.at += int64(len(w.buf))
	return true, nil
}

// appendSample appends the members of a Sample that do not depend on its position.
func appendSample(b []byte, r *sink.StoredRow, advantage float64) []byte {
	response := r.InputIDs[r.PromptLength:]
	b = pickleList(pickleText(b, "tokens"), r.InputIDs, pickleInt)
	b = pickleInt(pickleText(b, "response_length"), int32(len(response)))
	b = pickleList(pickleText(b, "loss_mask"), r.LossMask[r.PromptLength:], func(b []byte, m int8) []byte { return pickleInt(b, int32(m)) })
	b = pickleList(pickleText(b, "rollout_log_probs"), r.Logprobs[r.PromptLength:], func(b []byte, v float32) []byte { return pickleFloat(b, float64(v)) })
	b = pickleFloat(pickleText(b, "reward"), advantage)
	b = pickleList(pickleText(b, "weight_versions"), rowVersions(r), pickleText)
	status := "completed"
	if r.Truncated {
		status = "truncated"
	}
	b = pickleText(pickleText(b, "status"), status)
	b = pickleFloat(pickleText(append(pickleText(b, "metadata"), beginDict...), "raw_reward"), *r.Reward)
	b = pickleText(pickleText(b, "sample_key"), r.SampleKey)
	b = pickleText(pickleText(b, "group_id"), r.GroupID)
	b = pickleInt(pickleText(b, "segment_index"), r.SegmentIndex)
	return append(b, endDict...)
}

// rowVersions returns the oldest and the newest version of the row, if they are known.
func rowVersions(r *sink.StoredRow) (all []string) {
	for _, v := range []*int32{r.PolicyVersionMin, r.PolicyVersionMax} {
		if v != nil && !slices.Contains(all, strconv.Itoa(int(*v))) {
			all = append(all, strconv.Itoa(int(*v)))
		}
	}
	return all
}

// End implements Writer.
func (w *slimeWriter) End() error {
	for _, g := range w.groups {
		slices.SortFunc(g.rows, func(a, b slimeRow) int {
			return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.segment, b.segment))
		})
	}
	sum := &summed{crc: crc32.NewIEEE()}
	if err := w.pickle(sum); err != nil {
		return err
	}
	z := zip.NewWriter(w.w)
	for _, f := range []struct {
		name, text string
	}{{"data.pkl", ""}, {"byteorder", "little"}, {"version", "3\n"}} {
		size, crc := sum.n, sum.crc.Sum32()
		if f.text != "" {
			size, crc = uint64(len(f.text)), crc32.ChecksumIEEE([]byte(f.text))
		}
		// The sizes come before the content, as in the files of PyTorch.
		to, err := z.CreateRaw(&zip.FileHeader{Name: "rollout/" + f.name, Method: zip.Store, CRC32: crc, CompressedSize64: size, UncompressedSize64: size})
		if err == nil && f.text == "" {
			err = w.pickle(to)
		} else if err == nil {
			_, err = io.WriteString(to, f.text)
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}

type summed struct {
	crc interface {
		io.Writer
		Sum32() uint32
	}
	n uint64
}

func (s *summed) Write(p []byte) (int, error) {
	s.n += uint64(len(p))
	return s.crc.Write(p)
}

// pickle writes the pickle of all samples. It writes the same bytes each time.
func (w *slimeWriter) pickle(to io.Writer) error {
	out := bufio.NewWriterSize(to, 256<<10)
	b := append([]byte(pickleHead+beginDict), pickleText(nil, "rollout_id")...)
	b = append(pickleText(pickleInt(b, 0), "samples"), emptyList...)
	row, rollout := int32(0), int32(-1)
	for g, group := range w.groups {
		for i, r := range group.rows {
			if i == 0 || r.index != group.rows[i-1].index {
				rollout++
			}
			b = pickleInt(pickleText(append(b, beginDict...), "group_index"), int32(g))
			b = pickleInt(pickleText(b, "index"), row)
			b = pickleInt(pickleText(b, "rollout_id"), rollout)
			row++
			if _, err := out.Write(b); err != nil {
				return err
			}
			if _, err := io.Copy(out, io.NewSectionReader(w.spool, r.at, int64(r.bytes))); err != nil {
				return err
			}
			b = append(b[:0], endDict+appendItem...)
		}
	}
	_, err := out.Write(append(b, endDict+pickleEnd...))
	return errors.Join(err, out.Flush())
}

// Close implements Writer.
func (w *slimeWriter) Close() error { return w.spool.Close() }
