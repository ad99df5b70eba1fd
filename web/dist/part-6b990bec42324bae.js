import{j as o}from"./part-66642ac7f8e3b076.js";var e=o(null);export{e as a};
