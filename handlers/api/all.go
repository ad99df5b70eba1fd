package api

import (
	"slices"

	"github.com/mailstead/mailstead/service"
)

// All returns all operations of the API, in the order of the reference.
func All(s *service.Service) []Operation {
	return slices.Concat(
		accountOperations(s), meOperations(s), teamOperations(s), domainOperations(s), dnsOperations(s), zoneOperations(s), dnsCredentialOperations(s), webhookOperations(s), jobOperations(s), emailUserOperations(s), credentialOperations(s), mailRuleOperations(s), groupOperations(s),
		templateOperations(s), messageTemplateOperations(s), exportOperations(s), healthOperations(s), settingsOperations(s), backupOperations(s), requestOperations(s), mailOperations(s), folderOperations(s), sendingOperations(s), approvalOperations(s), suppressionOperations(s), hostedOperations(s),
	)
}
