package sink

import "io"

// WriteShard writes rows as a data shard, whatever rules they break: the rows of
// samples cannot have every value that a column can.
func WriteShard(w io.Writer, format Format, rows []StoredRow, groupTokens int, meta map[string]string) error {
	var enc encoder[StoredRow]
	if format == Arrow {
		enc = newArrowEncoder(w, newColumnSet(), groupTokens, meta)
	} else {
		enc = newParquetEncoder[StoredRow](w, newCodec(), groupTokens, meta)
	}
	for i := range rows {
		if err := enc.encode(&rows[i], len(rows[i].InputIDs)); err != nil {
			return err
		}
	}
	return enc.close()
}
