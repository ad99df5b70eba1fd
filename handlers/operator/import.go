package operator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/transfer"
)

// An ImportHeader is one line of JSON before each message of a batch.
type ImportHeader struct {
	transfer.ImportHeader
	Size int `json:"size"` // bytes of the message
}

// importMessages imports a batch of messages into a folder. The first batch of an import has no
// messages. It checks that the mailbox exists, and records the import in the audit log.
func (o *Operator) importMessages(w http.ResponseWriter, r *http.Request) {
	results, err := func() ([]transfer.ImportResult, error) {
		u, err := o.Service.Transfer.FindMailbox(r.URL.Query().Get("mailbox"), "")
		if err != nil {
			return nil, err
		}
		if begins := r.URL.Query().Get("begins"); begins != "" {
			if err := o.recordAudit("import "+begins, u); err != nil {
				return nil, err
			}
		}
		var batch []transfer.ImportMessage
		for body := bufio.NewReader(r.Body); ; {
			line, err := body.ReadSlice('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				break
			}
			var h ImportHeader
			if err == nil {
				err = json.Unmarshal(line, &h)
			}
			if err != nil || h.Size < 0 || h.Size > core.MaxMessage {
				return nil, fmt.Errorf("read the header of a message to import: %w", err)
			}
			text := make([]byte, h.Size)
			if _, err := io.ReadFull(body, text); err != nil {
				return nil, fmt.Errorf("read the text of a message to import: %w", err)
			}
			batch = append(batch, transfer.ImportMessage{ImportHeader: h.ImportHeader, Body: bytes.NewReader(text)})
		}
		if len(batch) == 0 {
			return []transfer.ImportResult{}, nil
		}
		return o.Service.Transfer.ImportMessages(r.Context(), u, r.URL.Query().Get("folder"), batch)
	}()
	answerOperator(w, results, err)
}

// KnownImportsQuery asks which of some messages were imported before. The client need not read
// those again.
type KnownImportsQuery struct {
	Mailbox string   `json:"mailbox"`
	Folder  string   `json:"folder"`
	Keys    []string `json:"keys"`
}

// knownImports returns for each key in ask whether the message with that key was imported before.
func (o *Operator) knownImports(ctx context.Context, ask KnownImportsQuery) ([]bool, error) {
	u, err := o.Service.Transfer.FindMailbox(ask.Mailbox, "")
	if err != nil {
		return nil, err
	}
	return o.Service.Transfer.KnownImports(ctx, u, ask.Folder, ask.Keys)
}
