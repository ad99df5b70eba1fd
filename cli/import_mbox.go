package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/service/transfer"
)

func runImportMbox(ctx context.Context, e *env, o importOptions) error {
	folder := transfer.ImportFolder(strings.Split(o.folder, "/"))
	return importEach(ctx, e, o, func(im *transfer.Importer, from string) error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		if isDir(from) {
			return config.Mistake(fmt.Errorf("%s is a directory: name one mbox file; `mailstead import maildir` reads the directory of a Maildir", from))
		}
		return im.ReadMbox(ctx, f, folder)
	})
}
