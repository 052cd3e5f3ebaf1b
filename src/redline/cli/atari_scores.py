"""Scores in perspective: what random play and a human reach on Atari.

The references are those of the DQN literature, unclipped and from games that start with up to 30 no-ops: Mnih et al.
2015 (Nature 518, extended data table 2), completed to 57 games by Wang et al. 2016 (arXiv:1511.06581, appendix).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """Mean returns to measure a score by."""

    random: float
    human: float

    def normalise(self, score: float) -> float:
        """Return 0 for what random play reaches and 1 for what a human does."""
        return (score - self.random) / (self.human - self.random)


REFERENCES: Mapping[str, Reference] = {
    "alien": Reference(227.8, 7_127.7),
    "amidar": Reference(5.8, 1_719.5),
    "assault": Reference(222.4, 742.0),
    "asterix": Reference(210.0, 8_503.3),
    "asteroids": Reference(719.1, 47_388.7),
    "atlantis": Reference(12_850.0, 29_028.1),
    "bank_heist": Reference(14.2, 753.1),
    "battle_zone": Reference(2_360.0, 37_187.5),
    "beam_rider": Reference(363.9, 16_926.5),
    "berzerk": Reference(123.7, 2_630.4),
    "bowling": Reference(23.1, 160.7),
    "boxing": Reference(0.1, 12.1),
    "breakout": Reference(1.7, 30.5),
    "centipede": Reference(2_090.9, 12_017.0),
    "chopper_command": Reference(811.0, 7_387.8),
    "crazy_climber": Reference(10_780.5, 35_829.4),
    "defender": Reference(2_874.5, 18_688.9),
    "demon_attack": Reference(152.1, 1_971.0),
    "double_dunk": Reference(-18.6, -16.4),
    "enduro": Reference(0.0, 860.5),
    "fishing_derby": Reference(-91.7, -38.7),
    "freeway": Reference(0.0, 29.6),
    "frostbite": Reference(65.2, 4_334.7),
    "gopher": Reference(257.6, 2_412.5),
    "gravitar": Reference(173.0, 3_351.4),
    "hero": Reference(1_027.0, 30_826.4),
    "ice_hockey": Reference(-11.2, 0.9),
    "jamesbond": Reference(29.0, 302.8),
    "kangaroo": Reference(52.0, 3_035.0),
    "krull": Reference(1_598.0, 2_665.5),
    "kung_fu_master": Reference(258.5, 22_736.3),
    "montezuma_revenge": Reference(0.0, 4_753.3),
    "ms_pacman": Reference(307.3, 6_951.6),
    "name_this_game": Reference(2_292.3, 8_049.0),
    "phoenix": Reference(761.4, 7_242.6),
    "pitfall": Reference(-229.4, 6_463.7),
    "pong": Reference(-20.7, 14.6),
    "private_eye": Reference(24.9, 69_571.3),
    "qbert": Reference(163.9, 13_455.0),
    "riverraid": Reference(1_338.5, 17_118.0),
    "road_runner": Reference(11.5, 7_845.0),
    "robotank": Reference(2.2, 11.9),
    "seaquest": Reference(68.4, 42_054.7),
    "skiing": Reference(-17_098.1, -4_336.9),
    "solaris": Reference(1_236.3, 12_326.7),
    "space_invaders": Reference(148.0, 1_668.7),
    "star_gunner": Reference(664.0, 10_250.0),
    "surround": Reference(-10.0, 6.5),
    "tennis": Reference(-23.8, -8.3),
    "time_pilot": Reference(3_568.0, 5_229.2),
    "tutankham": Reference(11.4, 167.6),
    "up_n_down": Reference(533.4, 11_693.2),
    "venture": Reference(0.0, 1_187.5),
    "video_pinball": Reference(16_256.9, 17_667.9),
    "wizard_of_wor": Reference(563.5, 4_756.5),
    "yars_revenge": Reference(3_092.9, 54_576.9),
    "zaxxon": Reference(32.5, 9_173.3),
}
