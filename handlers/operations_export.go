package handlers

import "github.com/mailstead/mailstead/service"

func exportOps(s *service.Service) []op {
	return []op{
		{name: "create_export", method: "POST", path: "/v1/export", status: 200, scope: "write", roles: managers, call: with(s.CreateExport)},
		{name: "list_export_formats", method: "GET", path: "/v1/export/formats", status: 200, scope: "read", roles: everyone, call: plain(s.ListExportFormats)},
	}
}
