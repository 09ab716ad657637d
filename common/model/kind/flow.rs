//! Who owns resources and which way they travel.

/// Who owns resources of a kind and which way they travel; the bits of Kuma's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(u8);

impl Flow {
    const CONSUMED_BY_ZONE: u8 = 1;
    const CONSUMED_BY_GLOBAL: u8 = 4;
    const PROVIDED_BY_ZONE: u8 = 8;
    const PROVIDED_BY_GLOBAL: u8 = 16;
    const ACROSS_ZONES: u8 = 32;
    /// No bit of Kuma's.
    const ACROSS_OUR_ZONES: u8 = 64;

    /// From the bit set as Kuma writes it.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The same, and zones that ask for it get copies of those of the others; Kuma's do not.
    pub const fn and_across_our_zones(self) -> Self {
        Self(self.0 | Self::ACROSS_OUR_ZONES)
    }

    const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    /// May be written through the API of global.
    pub const fn written_by_global(self) -> bool {
        self.has(Self::PROVIDED_BY_GLOBAL)
    }

    /// May be written through the API of a federated zone.
    pub const fn written_by_zone(self) -> bool {
        self.has(Self::PROVIDED_BY_ZONE)
    }

    /// Owned by global and sent to zones.
    pub const fn global_to_zone(self) -> bool {
        self.has(Self::PROVIDED_BY_GLOBAL | Self::CONSUMED_BY_ZONE)
    }

    /// Owned by a zone and sent to global.
    pub const fn zone_to_global(self) -> bool {
        self.has(Self::PROVIDED_BY_ZONE | Self::CONSUMED_BY_GLOBAL)
    }

    /// Copies of one zone's resources are forwarded to all other zones.
    pub const fn across_zones(self) -> bool {
        self.has(Self::ACROSS_ZONES)
    }

    /// Copies of one zone's resources are forwarded to all other zones that ask for them.
    pub const fn across_our_zones(self) -> bool {
        self.has(Self::ACROSS_OUR_ZONES)
    }

    /// Requested by a zone on `GlobalToZoneSync`.
    pub const fn requested_by_zone(self) -> bool {
        self.global_to_zone() || self.across_zones()
    }

    /// Requested by global on `ZoneToGlobalSync`.
    pub const fn requested_by_global(self) -> bool {
        self.zone_to_global()
    }
}
