import { Tabs } from '../../ui'

const tabs = [{ id: 'endpoints', href: '/webhooks', name: 'Webhooks' }, { id: 'events', href: '/webhooks/events', name: 'Events' }]

export function WebhookTabs({ current }: { current: 'endpoints' | 'events' }) {
  return <Tabs label="Webhooks" tabs={tabs} current={current} />
}
